// SPDX-License-Identifier: MIT
// Scores of a race between contenders over workloads and seeds. A run that missed the target counts
// as an infinite time and is never left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/compare.h"

namespace gallop::lab {

struct Outcome {
  std::string contender;
  std::string workload;
  uint64_t seed = 0;
  double time_to_target_s = 0;  // infinity: missed, diverged, out of memory or out of time
};

// The share of workloads on which a contender's median time is at most tau times the best median of
// all contenders (Dolan and More). Workloads that nobody solves count against everybody.
struct Profile {
  struct Step {
    double tau = 1;
    double share = 0;  // from tau up to the next step's
  };

  std::string contender;
  std::vector<Step> steps;  // the first at tau = 1, none beyond tau_max
  double score = 0;         // integral from 1 to tau_max divided by tau_max - 1, as in AlgoPerf

  double share_within(double tau) const;
};

// Throws when two outcomes have the same contender, workload and seed, or a time is not above 0.
std::vector<Profile> performance_profiles(std::span<const Outcome> outcomes, double tau_max = 4);

// For each contender's values, of which low ones are better and NaN is as bad as infinity: the
// share of resamples over seeds in which its median is the lowest. Ties share a win; nobody wins
// where all are infinite, so the sum may be below 1.
std::vector<double> win_probabilities(std::span<const std::vector<double>> values,
                                      const bench::Bootstrap& how = {});

}  // namespace gallop::lab
