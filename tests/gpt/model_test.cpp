// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gallop/error.h"
#include "gpt/fixture.h"

namespace gallop::gpt {
namespace {

std::string refusal(const std::string& model) {
  try {
    parse_model(model);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was refused";
}

TEST(Presets, HaveTheSizesTheyAreKnownFor) {
  EXPECT_EQ(parameter_count(parse_model("gpt2")), 124439808);
  EXPECT_EQ(parameter_count(parse_model("gpt2-medium")), 354823168);
  EXPECT_EQ(parameter_count(parse_model("gpt2-large")), 774030080);
  EXPECT_EQ(parameter_count(parse_model("gpt2-xl")), 1557611200);
  EXPECT_EQ(parameter_count(parse_model("S")), 128625408);  // as torch counts the same model
  EXPECT_EQ(parameter_count(parse_model("M")), 423183360);
  EXPECT_EQ(parameter_count(parse_model("2p7")), 3406809600);
}

TEST(Presets, OfAdanAreMadeOfHeadsLayersAndWidth) {
  const Config c = parse_model("adan:6x12x1536");
  EXPECT_EQ(c.heads, 6);
  EXPECT_EQ(c.layers, 12);
  EXPECT_EQ(c.width, 1536);
  EXPECT_EQ(c.vocabulary, 49280);
  EXPECT_EQ(c.context, 2048);
}

TEST(Presets, MayBeChanged) {
  const Config c = parse_model("gpt2:layers=3:vocabulary=49280:width=96:heads=4:tied=no");
  EXPECT_EQ(c.layers, 3);
  EXPECT_EQ(c.vocabulary, 49280);
  EXPECT_EQ(c.hidden, 4 * 96);
  EXPECT_FALSE(c.tied);
}

TEST(Presets, RefuseWhatTheyAreNot) {
  EXPECT_THAT(refusal("gpt5"),
              testing::HasSubstr("no model is called 'gpt5', expected one of nano"));
  EXPECT_EQ(refusal("gpt2:layers"), "'layers' in model 'gpt2:layers', expected KEY=VALUE");
  EXPECT_EQ(refusal("gpt2:layers=0"),
            "'0' in model 'gpt2:layers=0', expected a whole number above 0");
  EXPECT_EQ(refusal("gpt2:layers=2x"),
            "'2x' in model 'gpt2:layers=2x', expected a whole number above 0");
  EXPECT_EQ(refusal("gpt2:norm=batch"),
            "'batch' in model 'gpt2:norm=batch', expected layer or rms");
  EXPECT_EQ(refusal("gpt2:heads=7"), "a width of 768 with 7 heads, expected a multiple of them");
  EXPECT_EQ(refusal("adan:6x768"), "model 'adan:6x768', expected adan:HEADSxLAYERSxWIDTH");
  EXPECT_THAT(refusal("S:depth=3"),
              testing::StartsWith("'depth' in model 'S:depth=3', expected layers"));
}

TEST(Model, BeginsWithTheLossOfAGuess) {
  const Config config = parse_model("nano");
  const std::unique_ptr<Ops> ops = cpu_ops<float>(config, 2);
  Model model(config, shape(2, 128), *ops);
  model.initialize(1);
  model.evaluate(model.upload(random_batch(config, 2, 128)));
  EXPECT_NEAR(model.loss(), std::log(256), 0.05);
}

TEST(Model, EvaluatesToTheLossOfForward) {
  OnCpu<float> on(small(), shape(2, 9));
  const data::Batch batch = random_batch(small(), 2, 9);
  const double trained = on.step(batch);
  on.model.evaluate(on.model.upload(batch));
  EXPECT_NEAR(on.model.loss(), trained, 1e-6);
}

TEST(Model, SeesNothingOfWhatComesLater) {
  OnCpu<double> on(small(), shape(1, 9));
  data::Batch batch = random_batch(small(), 1, 9);
  const std::vector<double> before = on.model.logits(on.model.upload(batch), 5);
  for (size_t i = 6; i < 9; ++i) batch.inputs[i] = (batch.inputs[i] + 1) % 17;
  data::index_by_token(batch, 17);
  EXPECT_EQ(on.model.logits(on.model.upload(batch), 5), before);
  batch.inputs[5] = (batch.inputs[5] + 1) % 17;
  data::index_by_token(batch, 17);
  EXPECT_NE(on.model.logits(on.model.upload(batch), 5), before);
}

TEST(Model, LogitsGiveTheLoss) {
  OnCpu<double> on(small_swiglu(), shape(1, 1));
  const data::Batch batch = random_batch(small_swiglu(), 1, 1);
  const std::vector<double> logits = on.model.logits(on.model.upload(batch), 0);
  double sum = 0;
  for (double x : logits) sum += std::exp(x);
  on.model.evaluate(on.model.upload(batch));
  EXPECT_NEAR(on.model.loss(), std::log(sum) - logits[static_cast<size_t>(batch.targets[0])],
              1e-12);
}

// Loss and accuracy from each row's logits.
template <class T>
std::pair<double, double> apart(OnCpu<T>& on, const data::Batch& batch) {
  double loss = 0, hits = 0, counted = 0;
  const Tokens& tokens = on.model.upload(batch);
  for (size_t row = 0; row < batch.targets.size(); ++row) {
    if (batch.targets[row] < 0) continue;
    const std::vector<double> logits = on.model.logits(tokens, static_cast<int64_t>(row));
    const auto target = static_cast<size_t>(batch.targets[row]);
    double sum = 0;
    for (double x : logits) sum += std::exp(x);
    loss += std::log(sum) - logits[target];
    hits += std::ranges::max_element(logits) - logits.begin() == batch.targets[row] ? 1 : 0;
    ++counted;
  }
  return {loss / counted, hits / counted};
}

TEST(Model, LossAndAccuracyAreOverTargetsThatCount) {
  for (size_t logits : {size_t{1} << 20, size_t{300}}) {
    ModelOptions options = shape(3, 9);
    options.logits_bytes = logits;
    OnCpu<double> on(small(), options);
    data::Batch batch = padded(small(), random_batch(small(), 3, 9), {9, 2, 6});
    // Some that are right: random targets are in one of seventeen cases.
    const Tokens& tokens = on.model.upload(batch);
    for (size_t row : {0, 3, 9, 20}) {
      const std::vector<double> found = on.model.logits(tokens, static_cast<int64_t>(row));
      batch.targets[row] = static_cast<int32_t>(std::ranges::max_element(found) - found.begin());
    }
    const auto [loss, accuracy] = apart(on, batch);
    on.model.evaluate(on.model.upload(batch));
    EXPECT_NEAR(on.model.loss(), loss, 1e-12);
    EXPECT_NEAR(on.model.accuracy(), accuracy, 1e-15);
    EXPECT_GE(accuracy, 4.0 / 17);
    EXPECT_NEAR(on.step(batch), loss, 1e-12);
  }
}

TEST(Model, TheFirstOfEqualLogitsIsTheLargest) {
  OnCpu<float> on(small(), shape(1, 9));
  for (size_t i = 0; i < on.model.size(); ++i) {
    on.model.set_values(i, std::vector<double>(on.model.values(i).size()));
  }
  data::Batch batch = random_batch(small(), 1, 9);
  batch.targets = {0, 1, 16, 0, 5, -1, -1, -1, -1};
  on.model.evaluate(on.model.upload(batch));
  EXPECT_FLOAT_EQ(static_cast<float>(on.model.accuracy()), 0.4f);
  batch.targets.assign(9, -1);
  on.model.evaluate(on.model.upload(batch));
  EXPECT_EQ(on.model.accuracy(), 0);
}

TEST(Model, RefusesSequencesLongerThanItsContext) {
  const std::unique_ptr<Ops> ops = cpu_ops<float>(small(), 1);
  EXPECT_THROW(Model(small(), shape(1, 10), *ops), Error);
  EXPECT_THROW(Model(small(), shape(0, 4), *ops), Error);
}

TEST(Arena, NeverGivesOnePlaceToTwoAtATime) {
  for (bool checkpoints : {false, true}) {
    ModelOptions options = shape(3, 9);
    options.checkpoints = checkpoints;
    const OnCpu<float> on(small(":layers=5"), options);
    const Plan& plan = on.model.arena().of(Model::training);
    ASSERT_GT(plan.buffers.size(), 50u);
    for (size_t i = 0; i < plan.buffers.size(); ++i) {
      const Buffer& a = plan.buffers[i];
      EXPECT_LE(a.offset + a.bytes, plan.bytes);
      for (size_t j = 0; j < i; ++j) {
        const Buffer& b = plan.buffers[j];
        const bool at_a_time = a.first < b.last && b.first < a.last;
        const bool share = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
        EXPECT_FALSE(at_a_time && share) << a.name << " and " << b.name;
      }
    }
  }
}

TEST(Arena, NeedsLittleMoreThanWhatLivesAtOnce) {
  const OnCpu<float> on(small(":layers=6:width=96:hidden=384"), shape(4, 9));
  const Plan& plan = on.model.arena().of(Model::training);
  size_t most = 0;
  for (int64_t moment = 1; moment <= plan.moments; ++moment) {
    size_t live = 0;
    for (const Buffer& b : plan.buffers) {
      if (b.first <= moment && moment < b.last) live += b.bytes;
    }
    most = std::max(most, live);
  }
  EXPECT_LE(static_cast<double>(plan.bytes), 1.1 * static_cast<double>(most));
}

TEST(Arena, KeepsLessWithCheckpoints) {
  ModelOptions options = shape(2, 9);
  const Config config = small(":layers=12");
  const OnCpu<float> all(config, options);
  options.checkpoints = true;
  const OnCpu<float> some(config, options);
  EXPECT_LT(some.model.arena().of(Model::training).bytes,
            all.model.arena().of(Model::training).bytes / 3);
}

}  // namespace
}  // namespace gallop::gpt
