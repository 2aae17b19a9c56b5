// SPDX-License-Identifier: MIT
#include "bench/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "gallop/error.h"

namespace gallop::bench {
namespace {

using Samples = std::vector<double>;

// 1, 2, ..., n in descending order.
Samples counting(size_t n) {
  Samples samples(n);
  std::iota(samples.rbegin(), samples.rend(), 1.0);
  return samples;
}

TEST(Median, IsTheMiddleSampleOfAnOddNumber) { EXPECT_EQ(median(Samples{9, 1, 5}), 5); }

TEST(Median, IsTheMeanOfTheTwoMiddleSamplesOfAnEvenNumber) {
  EXPECT_EQ(median(Samples{9, 1, 5, 2}), 3.5);
}

TEST(Median, OfOneSampleIsThatSample) { EXPECT_EQ(median(Samples{4}), 4); }

TEST(Percentile, InterpolatesBetweenTheNearestSamples) {
  const Samples samples = {40, 10, 30, 20};
  EXPECT_DOUBLE_EQ(percentile(samples, 0), 10);
  EXPECT_DOUBLE_EQ(percentile(samples, 0.25), 17.5);
  EXPECT_DOUBLE_EQ(percentile(samples, 0.9), 37);
  EXPECT_DOUBLE_EQ(percentile(samples, 1), 40);
}

TEST(Percentile, LeavesTheSamplesInTheirOrder) {
  const Samples samples = {3, 1, 2};
  percentile(samples, 0.5);
  EXPECT_EQ(samples, (Samples{3, 1, 2}));
}

TEST(Percentile, RefusesAShareOutsideZeroToOne) {
  EXPECT_THROW(percentile(Samples{1}, -0.01), Error);
  EXPECT_THROW(percentile(Samples{1}, std::nan("")), Error);
  try {
    percentile(Samples{1}, 95);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "percentile got q = 95, expected a number from 0 to 1");
  }
}

TEST(Stddev, DividesByOneLessThanTheNumberOfSamples) {
  // Squared distances from the mean 5: 9 1 1 1 0 0 4 16, together 32.
  const Samples samples = {2, 4, 4, 4, 5, 5, 7, 9};
  EXPECT_DOUBLE_EQ(mean(samples), 5);
  EXPECT_DOUBLE_EQ(stddev(samples), std::sqrt(32.0 / 7));
}

TEST(Stddev, OfOneSampleIsZero) { EXPECT_EQ(stddev(Samples{3}), 0); }

TEST(Summarize, AgreesWithHandComputedValues) {
  const Summary summary = summarize(counting(21));
  EXPECT_EQ(summary.n, 21U);
  EXPECT_DOUBLE_EQ(summary.min, 1);
  EXPECT_DOUBLE_EQ(summary.p5, 2);
  EXPECT_DOUBLE_EQ(summary.median, 11);
  EXPECT_DOUBLE_EQ(summary.p95, 20);
  EXPECT_DOUBLE_EQ(summary.mean, 11);
  EXPECT_DOUBLE_EQ(summary.stddev, std::sqrt(770.0 / 20));
  EXPECT_DOUBLE_EQ(summary.iqr, 10);
}

TEST(Statistics, RefuseNoSamples) {
  EXPECT_THROW(median(Samples{}), Error);
  EXPECT_THROW(mean(Samples{}), Error);
  EXPECT_THROW(stddev(Samples{}), Error);
  EXPECT_THROW(summarize(Samples{}), Error);
  EXPECT_THROW(relative_halfwidth_of_median(Samples{}), Error);
}

TEST(Statistics, NameTheSampleThatIsNotFinite) {
  try {
    summarize(Samples{1, 2, std::numeric_limits<double>::infinity()});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "sample 2 is inf, expected a finite number");
  }
}

TEST(HalfwidthOfMedian, IsInfiniteForFewerThanSixSamples) {
  EXPECT_TRUE(std::isinf(relative_halfwidth_of_median(counting(5))));
  // 1 - 2 / 2^6 = 96.9 %, so six samples give their whole range: (6 - 1) / 2 / 3.5.
  EXPECT_DOUBLE_EQ(relative_halfwidth_of_median(counting(6)), 2.5 / 3.5);
}

TEST(HalfwidthOfMedian, UsesTheRanksOfTheBinomialTable) {
  // Published ranks of the two-sided 95 % interval: n = 10: 2 and 9, n = 25: 8 and 18,
  // n = 100: 40 and 61.
  EXPECT_DOUBLE_EQ(relative_halfwidth_of_median(counting(10)), 3.5 / 5.5);
  EXPECT_DOUBLE_EQ(relative_halfwidth_of_median(counting(25)), 5.0 / 13);
  EXPECT_DOUBLE_EQ(relative_halfwidth_of_median(counting(100)), 10.5 / 50.5);
}

TEST(HalfwidthOfMedian, StaysCorrectWhereTwoToTheMinusNUnderflows) {
  // The normal approximation puts the half width in ranks near 1.96 sqrt(n) / 2 = 98.
  EXPECT_NEAR(relative_halfwidth_of_median(counting(10000)) * 5000.5, 98, 1);
}

TEST(HalfwidthOfMedian, IgnoresOutliersBeyondTheRanks) {
  Samples samples = counting(10);
  samples.front() = 1e9;  // was the largest, 10
  EXPECT_DOUBLE_EQ(relative_halfwidth_of_median(samples), 3.5 / 5.5);
}

TEST(HalfwidthOfMedian, IsZeroForEqualSamplesEvenAtZero) {
  EXPECT_EQ(relative_halfwidth_of_median(Samples(20, 3.0)), 0);
  EXPECT_EQ(relative_halfwidth_of_median(Samples(20, 0.0)), 0);
}

}  // namespace
}  // namespace gallop::bench
