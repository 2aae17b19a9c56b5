// SPDX-License-Identifier: MIT
#include "lab/left_behind.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "gallop/error.h"
#include "io/atomic_file.h"
#include "jit/cache.h"
#include "lab/row_json.h"

namespace gallop::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".unsaved-";

Json to_json(const Results& r) {
  const Origin& o = r.origin;
  Json rows = Json::array();
  for (const Row& row : r.rows) {
    rows.push_back({config_json(row), result_json(row), samples_json(row)});
  }
  Json shown = Json::array();
  for (const Shown& s : r.shown) shown.push_back({s.title, s.columns, s.notes, s.rows});
  return {{"key", o.key},         {"time", o.time},     {"command", o.command},
          {"version", o.version}, {"commit", o.commit}, {"compiler", o.compiler},
          {"cpu", o.cpu},         {"cpus", o.cpus},     {"os", o.os},
          {"gpu", o.gpu},         {"driver", o.driver}, {"seed", o.seed ? Json(*o.seed) : Json()},
          {"clocks", o.clocks},   {"kind", r.kind},     {"rows", rows},
          {"shown", shown}};
}

Results from_json(const Json& j) {
  Results r;
  Origin& o = r.origin;
  o.key = j.at("key"), o.time = j.at("time"), o.command = j.at("command");
  o.version = j.at("version"), o.commit = j.at("commit"), o.compiler = j.at("compiler");
  o.cpu = j.at("cpu"), o.cpus = j.at("cpus"), o.os = j.at("os"), o.gpu = j.at("gpu");
  o.driver = j.at("driver"), o.clocks = j.value("clocks", "");
  if (!j.at("seed").is_null()) o.seed = j.at("seed").get<int64_t>();
  r.kind = j.at("kind");
  for (const Json& row : j.at("rows")) r.rows.push_back(row_from(row.at(0), row.at(1), row.at(2)));
  for (const Json& s : j.value("shown", Json::array())) {
    r.shown.push_back({s.at(0), s.at(1), s.at(2), s.at(3)});
  }
  return r;
}

// Where they may be: beside the store, or among temporary files under the store's name.
std::vector<fs::path> beginnings(const std::string& store) {
  const fs::path path = fs::absolute(store);
  std::error_code error;
  const fs::path elsewhere = fs::temp_directory_path(error);
  std::vector<fs::path> out = {path};
  if (!error) {
    out.push_back(elsewhere / fmt::format("gallop-{}", jit::digest(path.string()).substr(0, 16)));
  }
  return out;
}

}  // namespace

std::string leave_behind(const Results& results, const std::string& store) {
  const std::string text = dump(to_json(results));
  const std::vector<fs::path> places = beginnings(store);
  for (const fs::path& place : places) {
    std::string path = place.string() + kSuffix + results.origin.key;
    try {
      io::write_file_atomically(path, text);
      return path;
    } catch (const Error&) {
      if (&place == &places.back()) throw;
    }
  }
  return {};
}

void LeftBehind::remove() const {
  std::error_code error;  // then it is found again, and known by its key
  fs::remove(path_, error);
}

std::vector<LeftBehind> left_behind(const std::string& store) {
  std::vector<LeftBehind> out;
  for (const fs::path& place : beginnings(store)) {
    const std::string beginning = place.filename().string() + kSuffix;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(place.parent_path(), error)) {
      if (!entry.path().filename().string().starts_with(beginning)) continue;
      std::ifstream in(entry.path());
      const std::string text((std::istreambuf_iterator<char>(in)), {});
      try {
        out.emplace_back(entry.path().string(), from_json(Json::parse(text)));
      } catch (const Json::exception&) {
      }
    }
  }
  return out;
}

}  // namespace gallop::lab
