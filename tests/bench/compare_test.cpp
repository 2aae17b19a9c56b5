// SPDX-License-Identifier: MIT
#include "bench/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "bench/statistics.h"
#include "core/random.h"
#include "gallop/error.h"

namespace gallop::bench {
namespace {

using Samples = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// first, first + 1, ... n of them.
Samples counting(size_t n, double first = 1) {
  Samples samples(n);
  std::iota(samples.begin(), samples.end(), first);
  return samples;
}

// n samples without ties of which `u` pairs with 1, ..., m are the larger.
Samples with_u(size_t n, size_t m, size_t u) {
  Samples samples;
  for (size_t i = 0; i < n; ++i) {
    const size_t above = std::min(m, u);
    u -= above;
    samples.push_back(static_cast<double>(above) + 0.5 + 1e-3 * static_cast<double>(n - i));
  }
  return samples;
}

double p_of(size_t n, size_t m, size_t u) {
  const MannWhitney test = mann_whitney(with_u(n, m, u), counting(m));
  EXPECT_EQ(test.u, static_cast<double>(u));
  return test.p;
}

Samples normal(size_t n, double spread, uint64_t key) {
  Samples samples;
  const auto uniform = [&](uint64_t i) {
    return (static_cast<double>(combine(key, i) >> 11) + 0.5) * 0x1p-53;
  };
  for (size_t i = 0; i < n; ++i) {
    const double radius = std::sqrt(-2 * std::log(uniform(2 * i)));
    samples.push_back(1 + spread * radius * std::cos(2 * std::acos(-1.0) * uniform(2 * i + 1)));
  }
  return samples;
}

bool covers(const Interval& interval, double value) {
  return interval.low <= value && value <= interval.high;
}

TEST(MannWhitney, CountsTheWaysToDealSmallSamples) {
  EXPECT_NEAR(p_of(5, 5, 2), 2.0 * (1 + 1 + 2) / 252, 1e-15);
  EXPECT_NEAR(p_of(4, 4, 0), 2.0 / 70, 1e-15);
  EXPECT_NEAR(p_of(3, 3, 0), 0.1, 1e-15);
  EXPECT_DOUBLE_EQ(p_of(4, 5, 10), 1);  // the middle
  EXPECT_NEAR(p_of(1, 400, 0), 2.0 / 401, 1e-15);
}

TEST(MannWhitney, HasTheCriticalValuesOfTheTables) {
  struct Critical {
    size_t n, m, u;
  };
  // The largest U that is significant at 5 %, two-sided.
  for (const auto& [n, m, u] :
       {Critical{5, 5, 2}, {5, 8, 6}, {8, 8, 13}, {10, 10, 23}, {12, 15, 49}, {20, 20, 127}}) {
    EXPECT_LE(p_of(n, m, u), 0.05) << n << " and " << m;
    EXPECT_GT(p_of(n, m, u + 1), 0.05) << n << " and " << m;
  }
}

TEST(MannWhitney, AgreesWithExamplesOfScipyAndR) {
  const Samples males = {19, 22, 16, 29, 24};
  const Samples females = {20, 11, 17, 12};
  EXPECT_EQ(mann_whitney(males, females).u, 17);
  EXPECT_NEAR(mann_whitney(males, females).p, 0.1111111111111111, 1e-14);
  EXPECT_NEAR(mann_whitney(males, females, PMethod::normal).p, 0.11134688653314041, 1e-14);
  const Samples at_term = {0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46};
  const Samples early = {1.15, 0.88, 0.90, 0.74, 1.21};
  EXPECT_EQ(mann_whitney(at_term, early).u, 35);
  EXPECT_NEAR(mann_whitney(at_term, early).p, 2 * 0.1272, 1e-4);
}

TEST(MannWhitney, IsExactWithTies) {
  // Ranks 1.5 1.5 3.5 3.5 5.5 5.5: 2 of 20 choices of three are as low as the first three, 2 as
  // high.
  const Samples a = {1, 1, 2};
  const Samples b = {2, 3, 3};
  EXPECT_EQ(mann_whitney(a, b).u, 0.5);
  EXPECT_DOUBLE_EQ(mann_whitney(a, b).p, 0.2);
  // Variance 9 / 12 (7 - 18 / 30) = 4.8, z = 3.5 / sqrt(4.8).
  EXPECT_NEAR(mann_whitney(a, b, PMethod::normal).p, std::erfc(3.5 / std::sqrt(9.6)), 1e-15);
}

TEST(MannWhitney, TakesInfinitiesAsTies) {
  EXPECT_NEAR(mann_whitney(counting(5), Samples(5, kInf)).p, 2.0 / 252, 1e-15);
  EXPECT_EQ(mann_whitney(Samples(5, kInf), Samples(5, kInf)).p, 1);
  EXPECT_EQ(mann_whitney(Samples{1, kInf}, Samples{1, kInf}).u, 2);
}

TEST(MannWhitney, SeesNothingInEqualSamplesAndInOneEach) {
  EXPECT_EQ(mann_whitney(Samples(5, 2), Samples(7, 2)).p, 1);
  EXPECT_EQ(mann_whitney(Samples(500, 2), Samples(700, 2)).p, 1);
  EXPECT_EQ(mann_whitney(Samples{1}, Samples{2}).p, 1);
}

TEST(MannWhitney, IsTheSameFromBothSides) {
  const Samples a = {1, 4, 4, 9};
  const Samples b = {2, 4, 8, 8, 10, 11};
  EXPECT_EQ(mann_whitney(a, b).p, mann_whitney(b, a).p);
  EXPECT_EQ(mann_whitney(a, b).u + mann_whitney(b, a).u, 24);
}

TEST(MannWhitney, TakesManySamples) {
  const Samples many = counting(20000);
  EXPECT_EQ(mann_whitney(many, many).p, 1);
  EXPECT_EQ(mann_whitney(many, counting(20000, 30000)).p, 0);
  // z = (nm / 2 - 0.5) / sqrt(nm (n + m + 1) / 12) for n = m = 21: 220 / 39.749.
  EXPECT_NEAR(p_of(21, 21, 0), std::erfc(220 / std::sqrt(2 * 441 * 43 / 12.0)), 1e-20);
}

TEST(Compare, RefusesWhatIsNoSample) {
  const Samples some = {1, 2};
  EXPECT_THROW(mann_whitney(Samples{}, some), Error);
  EXPECT_THROW(mann_whitney(some, Samples{}), Error);
  EXPECT_THROW(mann_whitney(some, Samples{-kInf}), Error);
  EXPECT_THROW(compare(some, Samples{}), Error);
  EXPECT_THROW(bootstrap_interval(Samples{}, mean), Error);
  EXPECT_THROW(median_ratio_interval(some, Samples{1, -1}), Error);
  EXPECT_THROW(compare(some, some, {.level = 1}), Error);
  EXPECT_THROW(compare(some, some, {.resamples = 10}), Error);
  try {
    mann_whitney(some, Samples{1, kNan});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(), "sample 1 is nan, expected a number or infinity");
  }
}

TEST(MedianWithMisses, IsInfiniteWhenAMiddleSampleIs) {
  EXPECT_EQ(median_with_misses(Samples{kInf, 1, 3}), 3);
  EXPECT_EQ(median_with_misses(Samples{1, 3, kInf, kInf}), kInf);
  EXPECT_EQ(median_with_misses(Samples{1, 4}), 2.5);
}

TEST(BootstrapInterval, OfAMedianOfFiveIsTheirRange) {
  // Three of five draws are the smallest with probability 5.8 %.
  const Interval interval = bootstrap_interval(Samples{5, 3, 1, 2, 4}, median_with_misses);
  EXPECT_EQ(interval.low, 1);
  EXPECT_EQ(interval.high, 5);
}

TEST(BootstrapInterval, OfAMeanIsNearStudentsForManySamples) {
  const Samples samples = normal(1000, 1, 5);
  double squares = 0;
  const double centre = mean(samples);
  for (const double x : samples) squares += (x - centre) * (x - centre);
  const double halfwidth = 1.962 * std::sqrt(squares / 999 / 1000);
  const Interval interval = bootstrap_interval(samples, mean);
  EXPECT_NEAR(interval.low, centre - halfwidth, 0.05 * halfwidth);
  EXPECT_NEAR(interval.high, centre + halfwidth, 0.05 * halfwidth);
}

TEST(BootstrapInterval, IsAPointForEqualSamplesAndEverythingForOne) {
  const Interval equal = bootstrap_interval(Samples(6, 3.5), median_with_misses);
  EXPECT_EQ(equal.low, 3.5);
  EXPECT_EQ(equal.high, 3.5);
  const Interval one = bootstrap_interval(Samples{3}, mean);
  EXPECT_EQ(one.low, -kInf);
  EXPECT_EQ(one.high, kInf);
}

TEST(BootstrapInterval, DependsOnTheSeedAlone) {
  const Samples samples = normal(12, 1, 3);
  const Interval first = bootstrap_interval(samples, mean, {.seed = 7});
  const Interval again = bootstrap_interval(samples, mean, {.seed = 7});
  const Interval other = bootstrap_interval(samples, mean, {.seed = 8});
  EXPECT_EQ(first.low, again.low);
  EXPECT_EQ(first.high, again.high);
  EXPECT_NE(first.low, other.low);
  EXPECT_NEAR(first.low, other.low, 0.1);
}

TEST(BootstrapInterval, CoversTheTruth) {
  int median = 0;
  int of_mean = 0;
  for (uint64_t trial = 0; trial < 500; ++trial) {
    const Bootstrap how = {.resamples = 999, .seed = trial};
    median += covers(bootstrap_interval(normal(10, 0.2, trial), median_with_misses, how), 1);
    of_mean += covers(bootstrap_interval(normal(5, 0.2, trial), mean, how), 1);
  }
  EXPECT_GE(median, 460);
  EXPECT_GE(of_mean, 440);  // plain percentiles: 425
}

TEST(MedianRatioInterval, CoversTheTruth) {
  int covered = 0;
  for (uint64_t trial = 0; trial < 500; ++trial) {
    const Samples a = normal(10, 0.1, 2 * trial);
    Samples b = normal(10, 0.1, 2 * trial + 1);
    for (double& x : b) x *= 1.25;
    covered += covers(median_ratio_interval(a, b, {.resamples = 999, .seed = trial}), 1.25);
  }
  EXPECT_GE(covered, 460);
  EXPECT_LE(covered, 498);  // not by being as wide as can be
}

TEST(MedianRatioInterval, InvertsAndScalesWithItsSamples) {
  const Samples a = normal(8, 0.1, 1);
  const Samples b = normal(9, 0.1, 2);
  Samples doubled = b;
  for (double& x : doubled) x *= 2;
  const Interval ratio = median_ratio_interval(a, b);
  const Interval inverse = median_ratio_interval(b, a);
  EXPECT_LT(ratio.low, ratio.high);
  EXPECT_DOUBLE_EQ(inverse.low, 1 / ratio.high);
  EXPECT_DOUBLE_EQ(inverse.high, 1 / ratio.low);
  EXPECT_NEAR(median_ratio_interval(a, doubled).low, 2 * ratio.low, 0.02);
}

TEST(MedianRatioInterval, TakesMisses) {
  const Samples finite = {1, 2, 3, 4, 5};
  const Samples missed(5, kInf);
  EXPECT_EQ(median_ratio_interval(finite, missed).low, kInf);
  EXPECT_EQ(median_ratio_interval(missed, finite).high, 0);
  const Interval both = median_ratio_interval(missed, missed);
  EXPECT_EQ(both.low, 0);
  EXPECT_EQ(both.high, kInf);
  const Interval some = median_ratio_interval(finite, Samples{2, 2, 2, kInf, kInf});
  EXPECT_EQ(some.low, 0.4);
  EXPECT_EQ(some.high, kInf);
}

TEST(MedianRatioInterval, OfOneSampleIsEverything) {
  const Interval interval = median_ratio_interval(Samples{1}, Samples{2, 2, 2});
  EXPECT_EQ(interval.low, 0);
  EXPECT_EQ(interval.high, kInf);
}

TEST(Holm, MultipliesByHowManyAreLeftAndNeverFalls) {
  const std::vector<double> corrected = holm(Samples{0.01, 0.04, 0.03, 0.005});
  ASSERT_EQ(corrected.size(), 4U);
  EXPECT_DOUBLE_EQ(corrected[0], 0.03);
  EXPECT_DOUBLE_EQ(corrected[1], 0.06);
  EXPECT_DOUBLE_EQ(corrected[2], 0.06);
  EXPECT_DOUBLE_EQ(corrected[3], 0.02);
  EXPECT_EQ(holm(Samples{0.6, 0.7}), (Samples{1, 1}));
  EXPECT_EQ(holm(Samples{0.04}), (Samples{0.04}));
  EXPECT_TRUE(holm({}).empty());
  EXPECT_THROW(holm(Samples{1.5}), Error);
  EXPECT_THROW(holm(Samples{kNan}), Error);
}

TEST(Compare, ClaimsWhatPAndIntervalCarry) {
  const Samples a = {10, 11, 12, 13};
  const Samples b = {20, 22, 24, 26};
  const Verdict slower = compare(a, b);
  EXPECT_EQ(slower.verdict, Finding::greater);
  EXPECT_EQ(slower.ratio, 2);
  EXPECT_NEAR(slower.p, 2.0 / 70, 1e-15);
  EXPECT_GT(slower.interval.low, 20.0 / 13 - 1e-12);
  EXPECT_FALSE(slower.too_few);
  EXPECT_EQ(compare(b, a).verdict, Finding::less);
}

TEST(Compare, SaysWhenThereAreTooFew) {
  // The tied pairs of three would be significant by the normal approximation: p = 0.047.
  for (const Samples& a : {Samples{1}, Samples{1, 2, 3}, Samples{1, 1, 1}}) {
    const Verdict verdict = compare(a, Samples{100, 100, 100});
    EXPECT_EQ(verdict.verdict, Finding::no_difference_seen);
    EXPECT_TRUE(verdict.too_few);
  }
  EXPECT_FALSE(compare(Samples{1, 2, 3}, counting(5)).too_few);             // 2 / 56
  EXPECT_TRUE(compare(Samples{1, 2}, counting(7)).too_few);                 // 2 / 36
  EXPECT_FALSE(compare(Samples{1, 2}, counting(8)).too_few);                // 2 / 45
  EXPECT_TRUE(compare(counting(4), counting(4), {.level = 0.99}).too_few);  // 2 / 70
}

TEST(Compare, ClaimsNothingWhenOnlyPIsSmall) {
  Samples a(7, 10);
  Samples b(7, 10);
  for (int i = 1; i <= 6; ++i) {
    a.push_back(i);
    b.push_back(20 + i);
  }
  const Verdict verdict = compare(a, b);
  EXPECT_LT(verdict.p, 0.05);
  EXPECT_TRUE(covers(verdict.interval, 1));
  EXPECT_EQ(verdict.verdict, Finding::no_difference_seen);
}

TEST(Compare, SeesNoDifferenceInEqualSamples) {
  const Verdict verdict = compare(Samples(10, 3), Samples(10, 3));
  EXPECT_EQ(verdict.verdict, Finding::no_difference_seen);
  EXPECT_EQ(verdict.ratio, 1);
  EXPECT_EQ(verdict.p, 1);
}

TEST(Compare, JudgesMisses) {
  const Samples missed(5, kInf);
  const Verdict miss = compare(counting(5), missed);
  EXPECT_EQ(miss.ratio, kInf);
  EXPECT_EQ(miss.verdict, Finding::greater);
  EXPECT_EQ(compare(missed, counting(5)).verdict, Finding::less);
  EXPECT_EQ(compare(missed, counting(5)).ratio, 0);
  EXPECT_TRUE(std::isnan(compare(missed, missed).ratio));
  EXPECT_EQ(compare(missed, missed).verdict, Finding::no_difference_seen);
}

TEST(Compare, RarelyClaimsWhatIsNotThere) {
  int claims = 0;
  for (uint64_t trial = 0; trial < 400; ++trial) {
    const Verdict verdict = compare(normal(10, 0.1, 2 * trial), normal(10, 0.1, 2 * trial + 1),
                                    {.resamples = 499, .seed = trial});
    claims += verdict.verdict != Finding::no_difference_seen;
  }
  EXPECT_LE(claims, 28);  // 7 %
}

}  // namespace
}  // namespace gallop::bench
