// SPDX-License-Identifier: MIT
#include "lab/race_live.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <vector>

#include "gallop/error.h"
#include "io/atomic_file.h"
#include "lab/page/parts.h"
#include "lab/race_table.h"

namespace gallop::lab {
namespace {

namespace fs = std::filesystem;

constexpr auto kEvery = std::chrono::seconds(2);
// A race that was killed tells nothing any more.
constexpr auto kStale = std::chrono::seconds(20);

std::string file_in(const std::string& folder) { return (fs::path(folder) / "live.json").string(); }

double last_validation(const TrialResult& r) {
  return r.points.empty() ? std::numeric_limits<double>::infinity() : r.points.back().validation;
}

// The best so far first.
Table trials_table(const RaceOptions& race, const std::map<const Entry*, TrialResult>& trials) {
  std::vector<std::pair<double, Row>> rows;
  for (const auto& [entry, result] : trials) {
    Row row;
    row.set("optimizer", race.racers[entry->racer].name);
    if (race.workloads.size() > 1) row.set("workload", race.workloads[entry->workload].name);
    for (const Setting& s : race.racers[entry->racer].candidates[entry->candidate]) {
      row.set(s.name, s.value);
    }
    row.set("seed", entry->seed);
    if (!result.points.empty()) {
      const TrialPoint& p = result.points.back();
      row.set("step", p.step).set("of", entry->spec.steps).set("seconds", p.train_s);
      row.set("loss", p.loss).set("validation_loss", p.validation);
    }
    row.set("outcome", result.end == TrialEnd::lost ? "running" : to_string(result.end));
    rows.emplace_back(last_validation(result), std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  Table table;
  table.title = "Trials of this stage, the lowest loss so far first";
  for (auto& [loss, row] : rows) table.rows.push_back(std::move(row));
  return table;
}

}  // namespace

RaceLive::RaceLive(const RaceOptions& race)
    : race_(race), path_(race.folder.empty() ? "" : file_in(race.folder)) {}

RaceLive::~RaceLive() {
  std::error_code error;
  if (!path_.empty()) fs::remove(path_, error);
}

void RaceLive::begin(const Entry& entry) {
  trials_[&entry] = {};
  trials_[&entry].end = TrialEnd::lost;  // until it is known how it ended
}

void RaceLive::point(const Entry& entry, const TrialPoint& point) {
  trials_[&entry].points.push_back(point);
}

void RaceLive::end(const Entry& entry, const TrialResult& result) { trials_[&entry] = result; }

void RaceLive::tell(const std::string& progress) {
  const Clock::time_point now = Clock::now();
  if (path_.empty() || (last_ && now - *last_ < kEvery)) return;
  last_ = now;
  std::vector<Row> rows;
  rows.reserve(trials_.size());
  for (const auto& [entry, result] : trials_) rows.push_back(trial_row(race_, *entry, result));
  Json parts = Json::array({table_part(trials_table(race_, trials_))});
  for (Json& part : race_parts({}, rows)) parts.push_back(std::move(part));
  const Json section = {{"title", "Running: " + race_title(race_)},
                        {"running", true},
                        {"progress", progress},
                        {"parts", parts}};
  try {
    io::write_file_atomically(path_, dump(section));
  } catch (const Error&) {  // looking on is never worth ending the race
  }
}

Json running_race(const std::string& folder) {
  const std::string path = file_in(folder);
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  if (error || fs::file_time_type::clock::now() - written > kStale) return nullptr;
  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  Json section = Json::parse(text, nullptr, false);
  return section.is_object() ? section : Json();
}

}  // namespace gallop::lab
