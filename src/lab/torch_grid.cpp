// SPDX-License-Identifier: MIT
#include "lab/torch_grid.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gallop/error.h"
#include "torch_adam_grid.gen.h"

namespace gallop::lab {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& why) {
  throw Error(ErrorCode::unsupported, fmt::format("--with torch: {}", why));
}

std::string python() {
  const char* set = std::getenv("GALLOP_PYTHON");
  return set != nullptr && *set != 0 ? set : "python3";
}

json answer_of(PeerProcess& peer) {
  std::string line;
  try {
    line = peer.receive();
    return json::parse(line);
  } catch (const Error& e) {
    fail(e.what());
  } catch (const json::exception&) {
    fail(fmt::format("'{}' is not the line of JSON expected from {}", line, python()));
  }
}

Row to_row(const json& object) {
  Row row;
  for (const auto& [key, value] : object.items()) {
    if (value.is_string()) row.set(key, value.get<std::string>());
    if (value.is_number_integer()) row.set(key, value.get<int64_t>());
    if (value.is_number_float()) row.set(key, value.get<double>());
  }
  return row;
}

}  // namespace

TorchGrid::TorchGrid(const std::vector<std::string>& modes, int threads, double time_limit_s) {
  for (const std::string& mode : modes) {
    try {
      peers_.emplace_back(std::vector<std::string>{
          python(), "-c", kTorchAdamGrid, "--serve", "--modes", mode, "--threads",
          std::to_string(threads), "--time-limit", std::to_string(time_limit_s)});
    } catch (const Error& e) {
      fail(fmt::format("{} (GALLOP_PYTHON names another python)", e.what()));
    }
  }
  for (PeerProcess& peer : peers_) {
    const json hello = answer_of(peer);
    if (!hello.contains("torch")) {
      fail(fmt::format("{} has no torch (GALLOP_PYTHON names another python)", python()));
    }
  }
}

std::vector<Row> TorchGrid::cell(int64_t tensors, int64_t size) {
  std::vector<Row> rows;
  for (PeerProcess& peer : peers_) {
    peer.send(fmt::format("{} {}", tensors, size));
    const json answer = answer_of(peer);
    if (!answer.contains("rows")) fail("an answer without rows");
    for (const json& object : answer.at("rows")) rows.push_back(to_row(object));
  }
  return rows;
}

}  // namespace gallop::lab
