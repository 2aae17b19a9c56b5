// SPDX-License-Identifier: MIT
// A race's trials on this machine.
#pragma once

#include "lab/race.h"
#include "lab/race_folder.h"
#include "lab/trial_pool.h"

namespace gallop::lab {

struct RaceRunOptions {
  TrialPoolOptions pool;
  std::function<bool()> stop = [] { return false; };
};

// For run_race: what the folder has is taken from it, the rest is run and kept there one by one.
RunEntries run_here(const RaceOptions& race, const RaceFolder& folder,
                    const RaceRunOptions& options);

}  // namespace gallop::lab
