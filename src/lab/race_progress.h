// SPDX-License-Identifier: MIT
// How far a race has come, on stderr: on a terminal a line for each trial under way and who leads,
// otherwise a plain line now and then.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/race.h"
#include "lab/race_live.h"

namespace gallop::lab {

class RaceProgress {
 public:
  RaceProgress(const RaceOptions& race, const std::vector<Entry>& stage);
  ~RaceProgress();
  RaceProgress(const RaceProgress&) = delete;
  RaceProgress& operator=(const RaceProgress&) = delete;

  void known(const Entry& entry, const TrialResult& result);  // from before
  void begin(const Entry& entry);
  void point(const Entry& entry, const TrialPoint& point);
  void end(const Entry& entry, const TrialResult& result, bool again);
  void draw();

  // What a terminal shows, the leaders by their medians over the seeds so far last; at most so many
  // lines, from 4 on.
  std::vector<std::string> lines(size_t most) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    Clock::time_point since;
    std::optional<TrialPoint> last;
  };

  std::string summary() const;
  std::string line_of(const Entry& entry, const Running& running) const;
  std::vector<std::string> leaders(size_t most) const;
  void erase();

  const RaceOptions& race_;
  RaceLive live_;
  std::string stage_;
  size_t total_, known_ = 0, ended_ = 0;
  std::map<const Entry*, Running> running_;
  std::map<std::string, std::vector<double>> figures_;  // by racer and what it tries
  bool terminal_;
  size_t drawn_ = 0;  // lines
  Clock::time_point start_, last_;
};

}  // namespace gallop::lab
