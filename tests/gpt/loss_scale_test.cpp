// SPDX-License-Identifier: MIT
#include "gpt/loss_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gallop/error.h"
#include "gpt/tiny_run.h"

namespace gallop::gpt {
namespace {

using testing::HasSubstr;

TEST(LossScale, FallsWithEverySkippedStepAndGrowsAfterManyThatWereNot) {
  LossScale s;
  s.advance(1);
  EXPECT_EQ(s.scale, 32768);
  s.advance(2);
  EXPECT_EQ(s.scale, 16384);
  for (int i = 1; i < 2000; ++i) s.advance(2);
  EXPECT_EQ(s.scale, 16384);
  s.advance(2);
  EXPECT_EQ(s.scale, 32768);
  EXPECT_EQ(s.good_steps, 0);
  s.advance(2);
  s.advance(3);
  EXPECT_EQ(s.scale, 16384);
  EXPECT_EQ(s.good_steps, 0);
}

TEST(LossScale, StaysFinite) {
  LossScale s{0x1p127f, 1999, 0};
  s.advance(0);
  EXPECT_EQ(s.scale, 0x1p127f);
}

std::vector<double> trained(Trainer& trainer, int64_t steps) {
  const data::SyntheticCorpus corpus = tiny_corpus();
  RunOptions o;
  o.steps = steps;
  std::vector<double> losses;
  RunCallbacks c;
  c.step = [&](const StepReport& r) { losses.push_back(r.loss); };
  run(trainer, corpus, o, c);
  return losses;
}

TEST(LossScale, OfAPowerOfTwoChangesNoBit) {
  TrainerOptions o = tiny_trainer();
  o.accumulation = 2;
  Trainer without(o);
  o.loss_scale = 4096;
  Trainer with(o);
  EXPECT_EQ(trained(with, 5), trained(without, 5));
  EXPECT_EQ(bits(with), bits(without));
  EXPECT_EQ(with.loss_scale()->scale, 4096);
  EXPECT_EQ(with.loss_scale()->good_steps, 5);
  EXPECT_FALSE(without.loss_scale());
}

TEST(LossScale, DoesNotShowInGradients) {
  TrainerOptions o = tiny_trainer("none", 0);
  Trainer without(o);
  o.loss_scale = 1024;
  Trainer with(o);
  const data::SyntheticCorpus corpus = tiny_corpus();
  const data::Batch batch = data::Loader(corpus, {o.batch, o.config.context}).next();
  for (Trainer* t : {&with, &without}) t->step({&batch, 1});
  for (size_t i = 0; i < with.model().size(); ++i) {
    EXPECT_EQ(with.model().grad_values(i), without.model().grad_values(i));
  }
}

// What makes gradients of the embedding too large for fp32 once the loss is multiplied.
void make_large(Trainer& trainer) {
  Model& model = trainer.model();
  for (size_t i = 0; i < model.size(); ++i) {
    if (model.spec(i).part != Part::norm) continue;
    model.set_values(i, std::vector<double>(static_cast<size_t>(model.spec(i).elements()), 4096));
  }
  trainer.parameters_changed();
}

TEST(LossScale, FallsUntilGradientsAreFiniteAndNothingElseHappensBefore) {
  TrainerOptions o = tiny_trainer();
  o.clip_norm = 0;
  o.loss_scale = 0x1p120;
  Trainer trainer(o);
  make_large(trainer);
  const data::SyntheticCorpus corpus = tiny_corpus();
  data::Loader loader(corpus, {o.batch, o.config.context});
  const auto before = bits(trainer);
  double scale = 0x1p120;
  int64_t skipped = 0;
  for (bool again = true; again; ++skipped) {
    ASSERT_LT(skipped, 40);
    trainer.step({&loader.next(), 1});
    again = trainer.optimizer()->skipped() > skipped;
    if (!again) break;
    scale /= 2;
    EXPECT_EQ(trainer.loss_scale()->scale, scale);
    EXPECT_EQ(trainer.loss_scale()->good_steps, 0);
    auto now = bits(trainer), then = before;
    for (auto* all : {&now, &then}) all->erase("optimizer");  // it has counted
    EXPECT_EQ(now, then);
  }
  EXPECT_GE(skipped, 1);
  EXPECT_EQ(trainer.loss_scale()->scale, scale);
  EXPECT_EQ(trainer.loss_scale()->good_steps, 1);
  EXPECT_EQ(trainer.optimizer()->steps(0), 1);
}

TEST(LossScale, GoesOnInAResumedRun) {
  const test::Folder folder;
  const data::SyntheticCorpus corpus = tiny_corpus();
  TrainerOptions o = tiny_trainer();
  o.loss_scale = 0x1p120;
  o.schedule = parse_schedule("linear:total=12,warmup=4");
  RunOptions r;
  r.steps = 9;
  std::vector<double> rates, again;
  const auto into = [](std::vector<double>& to) {
    RunCallbacks c;
    c.step = [&](const StepReport& report) { to.push_back(report.lr); };
    return c;
  };
  Trainer whole(o);
  make_large(whole);
  run(whole, corpus, r, into(rates));
  ASSERT_GE(whole.loss_scale()->skipped, 1) << "nothing was skipped: the test tests nothing";
  EXPECT_EQ(rates[0], rates[1]) << "a skipped step moves no schedule";
  r.checkpoint = folder / "run";
  {
    Trainer first(o);
    make_large(first);
    RunCallbacks c = into(again);
    c.stop = [&] { return again.size() == 3; };
    run(first, corpus, r, c);
  }
  r.resume = true;
  Trainer second(o);
  run(second, corpus, r, into(again));
  EXPECT_EQ(bits(second), bits(whole));
  EXPECT_EQ(again, rates);
  EXPECT_EQ(second.loss_scale()->scale, whole.loss_scale()->scale);
  EXPECT_EQ(second.loss_scale()->good_steps, whole.loss_scale()->good_steps);
}

TEST(LossScale, RefusesNonsense) {
  TrainerOptions o = tiny_trainer();
  for (double scale : {-1.0, 0x1p121, std::nan("")}) {
    o.loss_scale = scale;
    try {
      Trainer trainer(o);
      FAIL() << scale << " was not refused";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("expected 0 (none) to 2^120"));
    }
  }
}

}  // namespace
}  // namespace gallop::gpt
