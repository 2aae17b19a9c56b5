// SPDX-License-Identifier: MIT
// What is measured of each run of a profile, and what can be said of two optimizers from it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/compare.h"
#include "lab/trial.h"

namespace gallop::lab {

struct ProfileFigure {
  std::string name;
  bool exact = false;  // the same in every run: one tells all
  std::function<std::optional<double>(const TrialSpec&, const TrialResult&)> of;
};

// In the order in which tables have them; of runs that finished and were watched.
const std::vector<ProfileFigure>& profile_figures();
const ProfileFigure& profile_figure(std::string_view name);

// How much runs of one and the same optimizer differ: the standard deviation of logarithms, over
// all optimizers that have several runs.
struct Spread {
  double deviation = 0;
  size_t freedom = 0;  // 0: nothing is known
};
Spread spread_of(std::span<const std::vector<double>> by_optimizer);

// What the medians of n and m runs of one and the same optimizer differ by, relative, in 95 % of
// cases. Infinite where nothing is known.
double noise_band(const Spread& spread, size_t n, size_t m);

enum class Claim { less, greater, not_seen, too_few };

struct Change {
  double ratio = 1;
  bench::Interval interval;  // 95 %, bootstrap over runs
  double band = 0;           // noise
  Claim claim = Claim::not_seen;
  bool tested = false;  // a rank test could have shown it, and is part of the claim
};

// b next to a. A claim is made where all of the interval lies beyond the noise band, and where
// there are runs enough for it, a rank test agrees. Nothing where no ratio can be had.
std::optional<Change> change_of(std::span<const double> a, std::span<const double> b,
                                const Spread& spread, bool exact);

// Runs of each of two optimizers after which a difference of this size could be claimed, by how
// noise shrinks; about.
int64_t repeats_to_tell(const Change& change, size_t repeats);

}  // namespace gallop::lab
