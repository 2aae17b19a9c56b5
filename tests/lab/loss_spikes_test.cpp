// SPDX-License-Identifier: MIT
#include "lab/loss_spikes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace gallop::lab {
namespace {

// As losses are: fast at first, then slowly.
double falling(int step) { return 2 + 8 * std::exp(-step / 30.0) + 1.0 / (1 + 0.01 * step); }

LossSpikes watch(int steps, const std::function<double(int)>& loss) {
  LossSpikes spikes;
  for (int step = 0; step < steps; ++step) spikes.add(loss(step));
  return spikes;
}

std::function<double(int)> noisy(uint64_t seed, double deviation) {
  return [bits = std::mt19937_64(seed), noise = std::normal_distribution(0.0, deviation)](
             int step) mutable { return falling(step) + noise(bits); };
}

TEST(LossSpikes, ASmoothCurveHasNone) {
  EXPECT_EQ(watch(3000, falling).count(), 0);
  EXPECT_EQ(watch(3000, [](int) { return 2.5; }).count(), 0);
}

TEST(LossSpikes, NoiseIsNone) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    for (const double deviation : {0.01, 0.1, 0.3}) {
      EXPECT_EQ(watch(3000, noisy(seed, deviation)).count(), 0) << seed << ", " << deviation;
    }
  }
}

TEST(LossSpikes, ARiseIsOneHoweverManyStepsItTakes) {
  for (const int lasts : {1, 10, 60, 500}) {
    const LossSpikes s = watch(2000, [&, base = noisy(1, 0.05)](int step) {
      return base(step) + (step >= 1000 && step < 1000 + lasts ? 3.0 : 0.0);
    });
    EXPECT_EQ(s.count(), 1) << lasts;
    EXPECT_NEAR(s.worst(), 3, 0.3);
  }
}

TEST(LossSpikes, EachIsCountedAndTheWorstIsKept) {
  const LossSpikes s = watch(1000, [](int step) {
    return falling(step) + (step == 300 ? 1.0 : step == 600 ? 4.0 : step == 900 ? 2.0 : 0.0);
  });
  EXPECT_EQ(s.count(), 3);
  EXPECT_NEAR(s.worst(), 4, 0.1);
}

TEST(LossSpikes, DivergenceIsOneAndWhatIsNotFiniteNone) {
  const LossSpikes s = watch(600, [](int step) {
    if (step >= 550) return std::numeric_limits<double>::quiet_NaN();
    return step < 500 ? falling(step) : falling(step) * std::exp(0.1 * (step - 499));
  });
  EXPECT_EQ(s.count(), 1);
  EXPECT_GT(s.worst(), 10);
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(watch(100, [&](int step) { return step > 50 ? inf : 1.0; }).count(), 0);
}

}  // namespace
}  // namespace gallop::lab
