// SPDX-License-Identifier: MIT
#include "bench/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "gallop/error.h"

namespace gallop::bench {
namespace {

void require_finite(std::span<const double> samples) {
  if (samples.empty()) {
    throw Error(ErrorCode::invalid_argument, "statistics got 0 samples, expected at least one");
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    if (std::isfinite(samples[i])) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("sample {} is {}, expected a finite number", i, samples[i]));
  }
}

std::vector<double> sorted(std::span<const double> samples) {
  require_finite(samples);
  std::vector<double> out(samples.begin(), samples.end());
  std::sort(out.begin(), out.end());
  return out;
}

double percentile_of_sorted(const std::vector<double>& samples, double q) {
  const double at = q * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, samples.size() - 1);
  return std::lerp(samples[below], samples[above], at - static_cast<double>(below));
}

// Rank of the interval's lower end, counted from 1: the largest k with P(B < k) <= 2.5 % for
// B ~ Binomial(n, 1/2), in logarithms because 2^-n underflows. 0 when n is too small for any.
size_t interval_rank(size_t n) {
  constexpr double kTail = 0.025;
  double log_term = -static_cast<double>(n) * std::log(2.0);
  double sum = 0;
  for (size_t k = 0; k < n; ++k) {
    sum += std::exp(log_term);
    if (sum > kTail) return k;
    log_term += std::log(static_cast<double>(n - k) / static_cast<double>(k + 1));
  }
  return 0;
}

}  // namespace

double median(std::span<const double> samples) { return percentile(samples, 0.5); }

double percentile(std::span<const double> samples, double q) {
  if (!(q >= 0 && q <= 1)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("percentile got q = {}, expected a number from 0 to 1", q));
  }
  return percentile_of_sorted(sorted(samples), q);
}

double mean(std::span<const double> samples) {
  require_finite(samples);
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

double stddev(std::span<const double> samples) {
  const double centre = mean(samples);
  if (samples.size() == 1) return 0;
  double squares = 0;
  for (const double sample : samples) squares += (sample - centre) * (sample - centre);
  return std::sqrt(squares / static_cast<double>(samples.size() - 1));
}

Summary summarize(std::span<const double> samples) {
  const std::vector<double> ordered = sorted(samples);
  return {.n = ordered.size(),
          .min = ordered.front(),
          .p5 = percentile_of_sorted(ordered, 0.05),
          .median = percentile_of_sorted(ordered, 0.5),
          .p95 = percentile_of_sorted(ordered, 0.95),
          .mean = mean(ordered),
          .stddev = stddev(ordered),
          .iqr = percentile_of_sorted(ordered, 0.75) - percentile_of_sorted(ordered, 0.25)};
}

// Each sample falls below the true median with probability 1/2 whatever the distribution, so the
// k-th smallest and k-th largest enclose the median with the probability that a binomial gives.
double relative_halfwidth_of_median(std::span<const double> samples) {
  const std::vector<double> ordered = sorted(samples);
  const size_t rank = interval_rank(ordered.size());
  if (rank == 0) return std::numeric_limits<double>::infinity();
  const double halfwidth = (ordered[ordered.size() - rank] - ordered[rank - 1]) / 2;
  if (halfwidth == 0) return 0;
  return halfwidth / std::fabs(percentile_of_sorted(ordered, 0.5));
}

}  // namespace gallop::bench
