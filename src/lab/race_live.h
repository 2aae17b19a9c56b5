// SPDX-License-Identifier: MIT
// A race under way, for whoever looks at it from another process: a file in the race's folder.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "lab/race.h"
#include "lab/row_json.h"

namespace gallop::lab {

class RaceLive {
 public:
  explicit RaceLive(const RaceOptions& race);
  ~RaceLive();  // nothing is under way then
  RaceLive(const RaceLive&) = delete;
  RaceLive& operator=(const RaceLive&) = delete;

  void begin(const Entry& entry);
  void point(const Entry& entry, const TrialPoint& point);
  void end(const Entry& entry, const TrialResult& result);
  // With a line for people; written when the last is some seconds old.
  void tell(const std::string& progress);

 private:
  using Clock = std::chrono::steady_clock;

  const RaceOptions& race_;
  std::string path_;                            // empty: nobody looks
  std::map<const Entry*, TrialResult> trials_;  // in the order of the stage
  std::optional<Clock::time_point> last_;
};

// The section of a page about the race that runs in a folder; null where none does.
Json running_race(const std::string& folder);

}  // namespace gallop::lab
