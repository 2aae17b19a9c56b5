// SPDX-License-Identifier: MIT
// Whether two sets of samples differ, and by how much. Samples come in any order. Infinity is
// allowed (a miss in a race) and equals other infinities; no samples, NaN and -infinity throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace gallop::bench {

struct Interval {
  double low = 0;
  double high = 0;
};

// Of samples in ascending order.
using Statistic = std::function<double(std::span<const double>)>;

// As median(), with infinities: it is infinite when a middle sample is.
double median_with_misses(std::span<const double> samples);

// The t beyond which lies so much of Student's distribution; tail up to 0.5, freedom from 1.
double student_quantile(double tail, size_t freedom);

struct Bootstrap {
  double level = 0.95;
  size_t resamples = 9999;
  uint64_t seed = 0;
};

// Draws as many samples as there are, with replacement: a pure function of seed, stream and number.
class Resampler {
 public:
  Resampler(std::span<const double> samples, uint64_t seed, uint64_t stream);

  std::span<const double> draw(uint64_t number);  // ascending, valid until the next draw

 private:
  uint64_t key_;
  std::vector<double> ordered_, drawn_;
  std::vector<uint32_t> counts_;
};

// Percentiles of the resampled statistic, further out for few samples by what Student's t is wider
// than a normal: plain ones cover a mean of 5 samples in 77 to 85 % of cases instead of 95. One
// sample bounds nothing: -infinity to infinity.
Interval bootstrap_interval(std::span<const double> samples, const Statistic& statistic,
                            const Bootstrap& how = {});

// Of the median of b over that of a, for samples that are not negative. Swapping a and b gives the
// inverse interval. Resamples whose ratio is NaN (a miss over a miss, 0 over 0) may be anything:
// they count as 0 at the low end and as infinity at the high end. One sample bounds nothing: 0 to
// infinity. Plain percentiles: they cover in 95 to 98 % of cases for 5 to 30 samples a side, in 90
// % for 3.
Interval median_ratio_interval(std::span<const double> a, std::span<const double> b,
                               const Bootstrap& how = {});

enum class PMethod { automatic, normal };

struct MannWhitney {
  double u = 0;  // pairs in which the sample of a is the larger; an equal pair is half a one
  double p = 1;  // two-sided
};

// Exact over all ways to deal the samples out, ties and all, where a and b have at most 400 pairs;
// else the normal approximation, corrected for ties and continuity.
MannWhitney mann_whitney(std::span<const double> a, std::span<const double> b,
                         PMethod method = PMethod::automatic);

// Holm's correction, in the order given: claim those that are still at most alpha, and the chance
// that any of the claims is wrong is at most alpha.
std::vector<double> holm(std::span<const double> p_values);

enum class Finding { less, greater, no_difference_seen };  // b, next to a

struct Verdict {
  double ratio = 0;  // median of b / median of a; NaN when both are infinite or both 0
  Interval interval;
  double p = 1;
  Finding verdict = Finding::no_difference_seen;
  bool too_few = false;  // no samples of these sizes could have shown a difference
};

// A difference is claimed when p is at most 1 - level, the interval leaves 1 out, and both point
// the same way.
Verdict compare(std::span<const double> a, std::span<const double> b, const Bootstrap& how = {});

}  // namespace gallop::bench
