// SPDX-License-Identifier: MIT
#include "lab/scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "gallop/error.h"

namespace gallop::lab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

size_t index_of(std::vector<std::string>& names, const std::string& name) {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at != names.end()) return static_cast<size_t>(at - names.begin());
  names.push_back(name);
  return names.size() - 1;
}

struct Race {
  std::vector<std::string> contenders, workloads;
  std::vector<std::vector<std::vector<double>>> times;  // of a workload, of a contender

  double median(size_t workload, size_t contender) const {
    const std::vector<double>& runs = times[workload][contender];
    return runs.empty() ? kInfinity : bench::median_with_misses(runs);
  }
};

Race race_of(std::span<const Outcome> outcomes) {
  Race race;
  std::set<std::tuple<size_t, size_t, uint64_t>> seen;
  for (const Outcome& run : outcomes) {
    if (!(run.time_to_target_s > 0)) {
      refuse(fmt::format("time of {} on {} with seed {} is {} s, expected one above 0, or infinity",
                         run.contender, run.workload, run.seed, run.time_to_target_s));
    }
    const size_t workload = index_of(race.workloads, run.workload);
    const size_t contender = index_of(race.contenders, run.contender);
    if (!seen.emplace(workload, contender, run.seed).second) {
      refuse(fmt::format("{} on {} with seed {} came twice, expected one outcome for each seed",
                         run.contender, run.workload, run.seed));
    }
    race.times.resize(race.workloads.size());
    if (race.times[workload].size() <= contender) race.times[workload].resize(contender + 1);
    race.times[workload][contender].push_back(run.time_to_target_s);
  }
  for (auto& of_workload : race.times) of_workload.resize(race.contenders.size());
  return race;
}

}  // namespace

double Profile::share_within(double tau) const {
  double share = 0;
  for (const Step& step : steps) {
    if (step.tau <= tau) share = step.share;
  }
  return share;
}

std::vector<Profile> performance_profiles(std::span<const Outcome> outcomes, double tau_max) {
  if (!(tau_max > 1 && std::isfinite(tau_max))) {
    refuse(fmt::format("tau_max is {}, expected a finite number above 1", tau_max));
  }
  const Race race = race_of(outcomes);
  const auto workloads = static_cast<double>(race.workloads.size());
  std::vector<std::vector<double>> taus(race.contenders.size());  // at which a workload joins
  for (size_t w = 0; w < race.workloads.size(); ++w) {
    double best = kInfinity;
    for (size_t c = 0; c < taus.size(); ++c) best = std::min(best, race.median(w, c));
    for (size_t c = 0; c < taus.size(); ++c) {
      const double median = race.median(w, c);
      if (std::isfinite(median) && median / best <= tau_max) taus[c].push_back(median / best);
    }
  }
  std::vector<Profile> profiles;
  for (size_t c = 0; c < taus.size(); ++c) {
    Profile profile{.contender = race.contenders[c], .steps = {{1, 0}}, .score = 0};
    std::sort(taus[c].begin(), taus[c].end());
    for (size_t i = 0; i < taus[c].size(); ++i) {
      const double tau = taus[c][i];
      if (tau > profile.steps.back().tau) profile.steps.push_back({tau, 0});
      profile.steps.back().share = static_cast<double>(i + 1) / workloads;
      profile.score += (tau_max - tau) / (tau_max - 1) / workloads;
    }
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

std::vector<double> win_probabilities(std::span<const std::vector<double>> values,
                                      const bench::Bootstrap& how) {
  if (how.resamples == 0) refuse("win probabilities got 0 resamples, expected at least one");
  std::vector<bench::Resampler> resamplers;
  for (size_t c = 0; c < values.size(); ++c) {
    std::vector<double> known = values[c];
    std::replace_if(
        known.begin(), known.end(), [](double x) { return std::isnan(x); }, kInfinity);
    resamplers.emplace_back(known, how.seed, c);
  }
  std::vector<double> wins(values.size());
  std::vector<double> medians(values.size());
  for (size_t i = 0; i < how.resamples; ++i) {
    double best = kInfinity;
    for (size_t c = 0; c < values.size(); ++c) {
      medians[c] = bench::median_with_misses(resamplers[c].draw(i));
      best = std::min(best, medians[c]);
    }
    if (best == kInfinity) continue;
    const auto winners = static_cast<double>(std::count(medians.begin(), medians.end(), best));
    for (size_t c = 0; c < wins.size(); ++c) wins[c] += medians[c] == best ? 1 / winners : 0;
  }
  for (double& share : wins) share /= static_cast<double>(how.resamples);
  return wins;
}

}  // namespace gallop::lab
