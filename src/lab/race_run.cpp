// SPDX-License-Identifier: MIT
#include "lab/race_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/race_progress.h"

namespace gallop::lab {

RunEntries run_here(const RaceOptions& race, const RaceFolder& folder,
                    const RaceRunOptions& options) {
  return [&race, &folder, options](const std::vector<Entry>& entries,
                                   std::map<std::string, TrialResult>& done) {
    std::vector<TrialSpec> left;
    std::vector<const Entry*> whose;
    RaceProgress progress(race, entries);
    for (const Entry& e : entries) {
      const std::string hash = trial_hash(e.spec);
      if (done.contains(hash)) continue;
      if (const auto known = folder.find(e.spec)) {
        done[hash] = *known;
        progress.known(e, *known);
        continue;
      }
      left.push_back(e.spec);
      whose.push_back(&e);
    }
    // What was lost, by a machine that had too little memory for all of them, say, gets one more
    // chance, and is not kept: the next time it is run again.
    bool stopped = false;
    for (int chance = 0; chance < 2 && !left.empty() && !stopped; ++chance) {
      std::vector<TrialSpec> lost;
      std::vector<const Entry*> of_lost;
      TrialEvents events;
      events.begin = [&](size_t i) { progress.begin(*whose[i]); };
      events.point = [&](size_t i, const TrialPoint& p) { progress.point(*whose[i], p); };
      events.end = [&](size_t i, const TrialResult& r) {
        const bool again = r.end == TrialEnd::lost && chance == 0;
        progress.end(*whose[i], r, again);
        if (again) return lost.push_back(left[i]), of_lost.push_back(whose[i]);
        if (r.end != TrialEnd::lost) folder.keep(left[i], r);
        done[trial_hash(left[i])] = r;
      };
      events.wait = [&] { progress.draw(); };
      events.stop = [&] { return stopped = options.stop(); };
      run_trials(left, options.pool, events);
      left = std::move(lost);
      whose = std::move(of_lost);
    }
    return !stopped;
  };
}

}  // namespace gallop::lab
