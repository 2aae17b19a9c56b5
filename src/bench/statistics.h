// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>

namespace gallop::bench {

// All of these take samples in any order and throw when there are none or one is not finite.

double median(std::span<const double> samples);

// Linear interpolation between the two nearest samples; q from 0 (smallest) to 1 (largest).
double percentile(std::span<const double> samples, double q);

double mean(std::span<const double> samples);

// Of the population the samples come from (n - 1); 0 for one sample.
double stddev(std::span<const double> samples);

struct Summary {
  size_t n = 0;
  double min = 0;
  double p5 = 0;
  double median = 0;
  double p95 = 0;
  double mean = 0;
  double stddev = 0;
  double iqr = 0;  // p75 - p25
};

Summary summarize(std::span<const double> samples);

// Half the width of the 95 % confidence interval of the median, divided by the median. Infinite for
// fewer than 6 samples, which cannot bound a median with that confidence.
double relative_halfwidth_of_median(std::span<const double> samples);

}  // namespace gallop::bench
