// SPDX-License-Identifier: MIT
// A race's trials, by whoever runs them.
#pragma once

#include "lab/race.h"
#include "lab/race_claims.h"
#include "lab/race_folder.h"
#include "lab/trial_pool.h"

namespace gallop::lab {

struct RaceRunOptions {
  TrialPoolOptions pool;          // on this machine
  TrialRunner* others = nullptr;  // beside it
  RaceClaims* claims = nullptr;   // where others share the folder
  double look_s = 1;              // how often it is looked for what they did
  std::function<bool()> stop = [] { return false; };
};

// For run_race: what the folder has is taken from it, the rest is run and kept there one by one.
RunEntries run_here(const RaceOptions& race, const RaceFolder& folder,
                    const RaceRunOptions& options);

}  // namespace gallop::lab
