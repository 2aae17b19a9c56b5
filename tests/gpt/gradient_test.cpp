// SPDX-License-Identifier: MIT
// Gradients against finite differences, and every way to compute them against every other.
#include <gtest/gtest.h>

#include <cmath>

#include "gpt/fixture.h"

namespace gallop::gpt {
namespace {

using Gradients = std::vector<std::vector<double>>;

template <class T>
Gradients gradients(const OnCpu<T>& on) {
  Gradients all;
  for (size_t i = 0; i < on.model.size(); ++i) all.push_back(on.model.grad_values(i));
  return all;
}

template <class T>
void expect_near(const OnCpu<T>& on, const Gradients& a, const Gradients& b, double bound) {
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_LE(distance(a[i], b[i]), bound) << on.model.spec(i).name;
  }
}

void check_by_differences(const Config& config, ModelOptions options,
                          const std::vector<size_t>& lengths = {}) {
  OnCpu<double> on(config, options);
  data::Batch batch = random_batch(config, options.batch, options.time);
  if (!lengths.empty()) batch = padded(config, batch, lengths);
  on.step(batch);
  const Gradients found = gradients(on);
  const Tokens& tokens = on.model.upload(batch);
  constexpr double kApart = 1e-5;
  for (size_t i = 0; i < on.model.size(); ++i) {
    std::vector<double> values = on.model.values(i), expected, ours;
    for (size_t j = 0; j < values.size(); ++j) {
      const double before = values[j];
      const auto loss_at = [&](double value) {
        values[j] = value;
        on.model.set_values(i, values);
        on.model.evaluate(tokens);
        return on.model.loss();
      };
      // Of fourth order: what is left is rounding, about 1e-16 / 1e-5.
      expected.push_back((8 * (loss_at(before + kApart) - loss_at(before - kApart)) -
                          (loss_at(before + 2 * kApart) - loss_at(before - 2 * kApart))) /
                         (12 * kApart));
      ours.push_back(found[i][j]);
      values[j] = before;
    }
    on.model.set_values(i, values);
    EXPECT_LE(distance(ours, expected), 2e-8) << on.model.spec(i).name;
  }
}

TEST(Gradient, OfGpt2IsThatOfDifferences) { check_by_differences(small(), shape(2, 7)); }

TEST(Gradient, OfSwigluWithRopeIsThatOfDifferences) {
  check_by_differences(small_swiglu(), shape(2, 7));
}

TEST(Gradient, OfOtherCombinationsIsThatOfDifferences) {
  check_by_differences(small(":tied=no:biases=no:positions=rope:layers=1"), shape(1, 9));
  check_by_differences(small(":norm=rms:activation=swiglu:layers=1"), shape(3, 1));
  check_by_differences(small_swiglu(":norm=layer:biases=yes:tied=yes:layers=1"), shape(1, 5));
}

TEST(Gradient, OfNaiveAttentionIsThatOfDifferences) {
  ModelOptions options = shape(2, 7);
  options.attention = Attention::naive;
  check_by_differences(small(":layers=1"), options);
}

TEST(Gradient, OfPaddedSequencesIsThatOfDifferences) {
  ModelOptions options = shape(3, 7);
  check_by_differences(small(":layers=1"), options, {7, 1, 4});
  options.logits_bytes = 300;  // two rows at a time
  check_by_differences(small_swiglu(":layers=1"), options, {2, 0, 5});
}

TEST(Gradient, InSinglePrecisionIsNearTheOneInDouble) {
  for (const Config& config : {small(), small_swiglu()}) {
    OnCpu<float> narrow(config, shape(2, 9));
    OnCpu<double> wide(config, shape(2, 9));
    const data::Batch batch = random_batch(config, 2, 9);
    for (size_t i = 0; i < wide.model.size(); ++i) wide.model.set_values(i, narrow.model.values(i));
    EXPECT_NEAR(narrow.step(batch), wide.step(batch), 2e-6);
    expect_near(wide, gradients(narrow), gradients(wide), 1e-5);
  }
}

class EveryWay : public testing::TestWithParam<Config> {
 protected:
  Gradients with(ModelOptions options, int threads = 2) {
    OnCpu<double> on(GetParam(), options, threads);
    loss = on.step(random_batch(GetParam(), options.batch, options.time));
    return gradients(on);
  }
  double loss = 0;
};

TEST_P(EveryWay, GivesTheSameGradients) {
  const ModelOptions plain = shape(3, 9);
  const Gradients expected = with(plain);
  const double expected_loss = loss;
  OnCpu<double> on(GetParam(), plain);

  ModelOptions pieces = plain;
  pieces.logits_bytes = 5 * 17 * sizeof(double);  // five rows, which do not divide 27
  expect_near(on, with(pieces), expected, 1e-14);
  EXPECT_NEAR(loss, expected_loss, 1e-14);

  ModelOptions checkpoints = plain;
  checkpoints.checkpoints = true;
  EXPECT_EQ(with(checkpoints), expected);
  EXPECT_EQ(loss, expected_loss);

  ModelOptions naive = plain;
  naive.attention = Attention::naive;
  expect_near(on, with(naive), expected, 1e-12);

  ModelOptions unfused = plain;
  unfused.fused = false;
  expect_near(on, with(unfused), expected, 1e-12);

  EXPECT_EQ(with(plain, 1), expected);
  EXPECT_EQ(with(plain, 5), expected);
}

INSTANTIATE_TEST_SUITE_P(Models, EveryWay,
                         testing::Values(small(), small_swiglu(), small(":tied=no")));

TEST(Gradient, IsAddedToWhatIsThereWhenAskedFor) {
  for (const Config& config : {small(), small_swiglu()}) {
    for (size_t logits : {size_t{1} << 20, size_t{300}}) {
      ModelOptions options = shape(2, 9);
      options.logits_bytes = logits;
      OnCpu<double> on(config, options);
      on.step(random_batch(config, 2, 9, 1));
      Gradients sum = gradients(on);
      on.step(random_batch(config, 2, 9, 2));
      const Gradients second = gradients(on);
      for (size_t i = 0; i < sum.size(); ++i) {
        for (size_t j = 0; j < sum[i].size(); ++j) sum[i][j] += second[i][j];
      }
      on.step(random_batch(config, 2, 9, 1));
      on.step(random_batch(config, 2, 9, 2), true);
      expect_near(on, gradients(on), sum, 1e-13);
    }
  }
}

TEST(Gradient, LeavesOutTargetsBelowZero) {
  const Config config = small();
  data::Batch batch = random_batch(config, 2, 6);
  // The second sequence counts for nothing: as if it were not there.
  for (size_t i = 6; i < 12; ++i) batch.targets[i] = -1;
  OnCpu<double> both(config, shape(2, 6)), one(config, shape(1, 6));
  data::Batch half = batch;
  half.inputs.resize(6);
  half.targets.resize(6);
  data::index_by_token(half, static_cast<int>(config.vocabulary));
  EXPECT_NEAR(both.step(batch), one.step(half), 1e-14);
  expect_near(both, gradients(both), gradients(one), 1e-13);
}

TEST(Gradient, HasNothingOfPadding) {
  for (const Config& config : {small(), small_swiglu()}) {
    for (size_t logits : {size_t{1} << 20, size_t{300}}) {
      ModelOptions options = shape(3, 9);
      options.logits_bytes = logits;
      OnCpu<float> zeros(config, options), others(config, options);
      const data::Batch batch = random_batch(config, 3, 9);
      EXPECT_EQ(zeros.step(padded(config, batch, {3, 9, 5})),
                others.step(padded(config, batch, {3, 9, 5}, 11)));
      EXPECT_EQ(gradients(zeros), gradients(others));
    }
  }
}

TEST(Gradient, WithNoTargetAtAllIsZero) {
  const Config config = small();
  data::Batch batch = random_batch(config, 1, 4);
  for (int32_t& target : batch.targets) target = -1;
  OnCpu<float> on(config, shape(1, 4));
  EXPECT_EQ(on.step(batch), 0);
  for (const auto& gradient : gradients(on)) {
    for (double g : gradient) EXPECT_EQ(g, 0);
  }
}

TEST(Gradient, TurnsNotFiniteWithAWeight) {
  const Config config = small();
  OnCpu<float> on(config, shape(1, 4));
  std::vector<double> values = on.model.values(2);
  values[0] = NAN;
  on.model.set_values(2, values);
  EXPECT_TRUE(std::isnan(on.step(random_batch(config, 1, 4))));
}

}  // namespace
}  // namespace gallop::gpt
