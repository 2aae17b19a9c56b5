// SPDX-License-Identifier: MIT
// Optimizers on one model and data: what each takes of the machine, run after run in processes of
// their own, and which differences are more than noise.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/contender.h"
#include "lab/row.h"
#include "lab/trial_pool.h"

namespace gallop::lab {

struct ProfileOptions {
  std::vector<Contender> contenders;
  size_t baseline = 0;  // of the contenders
  TrialSpec base;       // all that contenders do not say
  int64_t repeats = 3;
  uint64_t first_seed = 1;  // every repeat has its own, of parameters and of data
};

struct ProfileRun {
  size_t contender = 0;
  int64_t repeat = 0;
  TrialSpec spec;
  TrialResult result;
};

// The contender of this name, as people write it; throws if there is none.
size_t find_contender(const std::vector<Contender>& contenders, const std::string& text);

// What is to be run, in order: all contenders once, then all again beginning with another one, so
// that a machine's drift hits all alike.
std::vector<ProfileRun> plan_profile(const ProfileOptions& options);

// Fills in results; false: stopped, and only those that ended are left. A short run that counts for
// nothing comes first: it brings the program and its libraries into the system's caches.
bool run_profile(std::vector<ProfileRun>& runs, const TrialPoolOptions& pool,
                 const std::function<bool()>& stop);

// One row for each run, and one for each contender with what all of its runs say.
std::vector<Row> profile_run_rows(const ProfileOptions& options,
                                  const std::vector<ProfileRun>& runs);
Table profile_summary(const ProfileOptions& options, const std::vector<ProfileRun>& runs);

// For people: figures, memory by class, and figures next to the baseline's. The reading stands
// under the last.
std::vector<Table> profile_tables(const ProfileOptions& options,
                                  const std::vector<ProfileRun>& runs);
// Only what the runs carry.
std::vector<std::string> read_profile(const ProfileOptions& options,
                                      const std::vector<ProfileRun>& runs);

}  // namespace gallop::lab
