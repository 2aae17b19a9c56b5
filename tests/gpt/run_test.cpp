// SPDX-License-Identifier: MIT
#include "gpt/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "gallop/error.h"
#include "gpt/sample.h"
#include "gpt/tiny_run.h"

namespace gallop::gpt {
namespace {

using testing::HasSubstr;

RunOptions steps(int64_t n, int64_t eval_every = 0) {
  RunOptions o;
  o.steps = n;
  o.eval_every = eval_every;
  o.eval_batches = 4;
  return o;
}

std::string refusal(Trainer& trainer, const data::Corpus& corpus, const RunOptions& o) {
  try {
    run(trainer, corpus, o);
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was refused";
}

TEST(Run, LearnsALanguage) {
  const data::SyntheticCorpus corpus = tiny_corpus();
  TrainerOptions o = tiny_trainer("adamw", 1e-2);
  o.batch = 16;
  Trainer trainer(o);
  RunOptions r = steps(300, 100);
  r.eval_batches = 16;
  const RunResult result = run(trainer, corpus, r);
  const double lowest = corpus.lowest_loss(16), unigram = corpus.unigram_entropy();
  EXPECT_LT(*result.progress.validation, 0.4 * unigram + 0.6 * lowest)
      << "unigram " << unigram << ", lowest " << lowest;
  EXPECT_GT(*result.progress.validation, lowest - 0.05);
  EXPECT_NEAR(result.progress.smoothed.value(), *result.progress.validation, 0.2);
  EXPECT_EQ(result.tokens, 300 * 16 * 16);
  EXPECT_EQ(result.end, RunResult::End::finished);
}

TEST(Run, ReportsEveryStepAndEvaluation) {
  const data::SyntheticCorpus corpus = tiny_corpus();
  TrainerOptions o = tiny_trainer();
  o.schedule = parse_schedule("constant:warmup=4");
  Trainer trainer(o);
  std::vector<StepReport> reports;
  RunCallbacks callbacks;
  callbacks.step = [&](const StepReport& r) { reports.push_back(r); };
  const RunResult result = run(trainer, corpus, steps(7, 3), callbacks);
  ASSERT_EQ(reports.size(), 7u);
  std::set<int64_t> evaluated;
  for (const StepReport& r : reports) {
    if (r.evaluated) evaluated.insert(r.step);
    EXPECT_GT(r.tokens_per_s, 0);
  }
  EXPECT_EQ(evaluated, (std::set<int64_t>{3, 6, 7}));
  EXPECT_NEAR(reports[0].loss, std::log(16), 0.1);
  EXPECT_DOUBLE_EQ(reports[1].lr, 0.5e-3);
  EXPECT_EQ(reports.back().loss, result.progress.loss);
  EXPECT_GT(result.start_s, 0);
  EXPECT_LE(result.data_wait_s, result.train_s);
}

class EvaluationOf : public testing::TestWithParam<const char*> {};

TEST_P(EvaluationOf, DoesNotDisturbTraining) {
  const data::SyntheticCorpus corpus = tiny_corpus();
  Trainer plain(tiny_trainer(GetParam())), evaluated(tiny_trainer(GetParam()));
  run(plain, corpus, steps(6));
  const RunResult result = run(evaluated, corpus, steps(6, 1));
  EXPECT_EQ(bits(plain), bits(evaluated));
  EXPECT_TRUE(result.progress.validation.has_value());
}

INSTANTIATE_TEST_SUITE_P(Rules, EvaluationOf,
                         testing::Values("adamw", "schedulefree_adamw", "muon"));

TEST(Run, EvaluatesTheAverageOfAScheduleFreeRule) {
  const data::SyntheticCorpus corpus = tiny_corpus();
  Trainer trainer(tiny_trainer("schedulefree_adamw", 1e-2));
  const RunResult result = run(trainer, corpus, steps(20, 20));
  const auto batches = data::validation_batches(corpus, 4, 16, 4);
  double as_trained = 0;
  for (const data::Batch& b : batches) as_trained += trainer.evaluate(b);
  EXPECT_NE(*result.progress.validation, as_trained / 4);
  EXPECT_EQ(*result.progress.validation, evaluate(trainer, batches).loss);
}

TEST(Run, TwoBatchesOfFourAreOneOfEight) {
  const data::SyntheticCorpus corpus = tiny_corpus();
  TrainerOptions o = tiny_trainer("sgd", 0.1);
  o.accumulation = 2;
  Trainer halves(o);
  o.accumulation = 1;
  o.batch = 8;
  Trainer whole(o);
  data::Loader loader(corpus, {4, 16});
  std::vector<data::Batch> two = {loader.next(), loader.next()};
  data::Batch one = two[0];
  one.inputs.insert(one.inputs.end(), two[1].inputs.begin(), two[1].inputs.end());
  one.targets.insert(one.targets.end(), two[1].targets.begin(), two[1].targets.end());
  data::index_by_token(one, corpus.vocabulary());
  for (int i = 0; i < 3; ++i) {
    halves.step(two);
    whole.step({&one, 1});
    EXPECT_NEAR(halves.loss(), whole.loss(), 1e-5);
  }
  for (size_t i = 0; i < whole.model().size(); ++i) {
    const auto a = halves.model().values(i), b = whole.model().values(i);
    for (size_t j = 0; j < a.size(); ++j)
      ASSERT_NEAR(a[j], b[j], 2e-6) << whole.model().spec(i).name;
  }
  // Through the loop: as many tokens, another batch for each half.
  Trainer again(halves.options());
  EXPECT_EQ(run(again, corpus, steps(3)).progress.batches, 6);
}

// Each batch's mean over its own targets, however few they are, and the mean of these.
TEST(Run, BatchesOfAStepCountAlike) {
  const data::SyntheticCorpus corpus = tiny_corpus();
  TrainerOptions o = tiny_trainer("sgd", 0.1);
  o.clip_norm = 0;
  Trainer first(o), second(o), start(o);
  o.accumulation = 2;
  Trainer both(o);
  data::Loader loader(corpus, {.rows = 4, .context = 16, .min_length = 1});
  std::vector<data::Batch> two = {loader.next(), loader.next()};
  std::fill(two[1].targets.begin() + 3, two[1].targets.end(), -1);
  first.step({two.data(), 1});
  second.step({two.data() + 1, 1});
  both.step(two);
  EXPECT_NEAR(both.loss(), (first.loss() + second.loss()) / 2, 1e-6);
  for (size_t i = 0; i < start.model().size(); ++i) {
    const auto a = first.model().values(i), b = second.model().values(i);
    const auto mean = both.model().values(i);
    for (size_t j = 0; j < a.size(); ++j) {
      ASSERT_NEAR(mean[j], (a[j] + b[j]) / 2, 2e-6) << start.model().spec(i).name;
    }
  }
}

TEST(Run, EvaluatesOverAllTargetsThatCount) {
  const data::SyntheticCorpus corpus = tiny_corpus();
  Trainer trainer(tiny_trainer("adamw", 1e-2));
  RunOptions r = steps(20, 20);
  r.min_length = 2;
  std::optional<StepReport> last;
  RunCallbacks callbacks;
  callbacks.step = [&](const StepReport& report) { last = report; };
  const RunResult result = run(trainer, corpus, r, callbacks);
  double loss = 0, hits = 0, counted = 0;
  for (const data::Batch& b : data::validation_batches(corpus, 4, 16, 4, 2)) {
    const auto n = static_cast<double>(
        std::ranges::count_if(b.targets, [](int32_t target) { return target >= 0; }));
    EXPECT_LT(n, 64);
    loss += n * trainer.evaluate(b);
    hits += n * trainer.accuracy();
    counted += n;
  }
  EXPECT_NEAR(*result.progress.validation, loss / counted, 1e-12);
  EXPECT_NEAR(*result.progress.accuracy, hits / counted, 1e-12);
  EXPECT_EQ(last->accuracy, result.progress.accuracy);
  EXPECT_GT(hits / counted, 2.0 / 16);  // a guess would have one of sixteen
  EXPECT_EQ(result.tokens, 20 * 4 * 16);
}

TEST(Run, SeedsMatterAndAreAllThatDoes) {
  const data::SyntheticCorpus corpus = tiny_corpus();
  const auto trained = [&](uint64_t seed, uint64_t data_seed, int threads) {
    TrainerOptions o = tiny_trainer();
    o.seed = seed;
    o.threads = threads;
    Trainer trainer(o);
    RunOptions r = steps(3);
    r.data_seed = data_seed;
    run(trainer, corpus, r);
    return bits(trainer);
  };
  const auto first = trained(1, 1, 1);
  EXPECT_EQ(first, trained(1, 1, 2));
  EXPECT_NE(first, trained(2, 1, 1));
  EXPECT_NE(first, trained(1, 2, 1));
}

TEST(Run, StopsWhenAsked) {
  const data::SyntheticCorpus corpus = tiny_corpus();
  Trainer trainer(tiny_trainer());
  RunCallbacks callbacks;
  int asked = 0;
  callbacks.stop = [&] { return ++asked == 3; };
  const RunResult result = run(trainer, corpus, steps(9), callbacks);
  EXPECT_EQ(result.end, RunResult::End::stopped);
  EXPECT_EQ(result.progress.step, 3);
}

TEST(Run, StopsWhereTheLossIsNotFinite) {
  const data::SyntheticCorpus corpus = tiny_corpus();
  const auto ended = [&](bool keep_going) {
    TrainerOptions o = tiny_trainer("sgd", 1e30);
    o.clip_norm = 0;
    Trainer trainer(o);
    RunOptions r = steps(9);
    r.keep_going = keep_going;
    return run(trainer, corpus, r);
  };
  const RunResult stopped = ended(false);
  EXPECT_EQ(stopped.end, RunResult::End::diverged);
  EXPECT_LT(stopped.progress.step, 9);
  EXPECT_FALSE(std::isfinite(stopped.progress.loss));
  EXPECT_TRUE(std::isfinite(stopped.progress.smoothed.value()));
  EXPECT_EQ(ended(true).progress.step, 9);
}

TEST(Run, RefusesWhatCannotBeTrained) {
  const data::SyntheticCorpus corpus = tiny_corpus();
  TrainerOptions o = tiny_trainer();
  o.config.vocabulary = 15;
  Trainer narrow(o), none(tiny_trainer("none", 1)), good(tiny_trainer());
  EXPECT_EQ(refusal(narrow, corpus, steps(1)),
            "a model with a vocabulary of 15 for data with one of 16, expected at least as many");
  EXPECT_THAT(refusal(none, corpus, steps(1)), HasSubstr("optimizer none"));
  EXPECT_EQ(refusal(good, corpus, steps(-1)), "-1 steps, expected 0 or more");
  RunOptions long_ones = steps(1);
  long_ones.min_length = 17;
  EXPECT_THAT(refusal(good, corpus, long_ones), HasSubstr("expected 1 to the context of 16"));
  RunOptions resumed = steps(1);
  resumed.resume = true;
  EXPECT_THAT(refusal(good, corpus, resumed), HasSubstr("without a checkpoint"));
}

TEST(Sample, FollowsTheLanguage) {
  const data::SyntheticCorpus corpus = tiny_corpus();
  TrainerOptions o = tiny_trainer("adamw", 1e-2);
  Trainer trainer(o);
  run(trainer, corpus, steps(300));
  SampleOptions s;
  s.tokens = 60;  // more than the context
  s.top_k = 2;
  const std::vector<int32_t> prompt = {3, 1};
  const std::vector<int32_t> text = sample(trainer.model(), prompt, s);
  ASSERT_EQ(text.size(), 60u);
  int possible = 0;
  std::vector<int32_t> all = prompt;
  for (int32_t next : text) {
    possible += corpus.chain().bigram(all.back(), next) > 0 ? 1 : 0;
    all.push_back(next);
  }
  EXPECT_GT(possible, 50);
  EXPECT_EQ(text, sample(trainer.model(), prompt, s));
  s.seed = 2;
  EXPECT_NE(text, sample(trainer.model(), prompt, s));
}

TEST(Sample, TemperatureAndTopK) {
  const std::vector<double> logits = {0, std::log(2.0), std::log(5.0), std::log(2.0)};
  SampleOptions o;
  EXPECT_EQ(choose(logits, 0.05, o), 0);
  EXPECT_EQ(choose(logits, 0.25, o), 1);
  EXPECT_EQ(choose(logits, 0.75, o), 2);
  EXPECT_EQ(choose(logits, 0.99, o), 3);
  o.top_k = 2;  // of equals the first: 2/7 for 1, 5/7 for 2
  EXPECT_EQ(choose(logits, 0.28, o), 1);
  EXPECT_EQ(choose(logits, 0.29, o), 2);
  EXPECT_EQ(choose(logits, 0.999, o), 2);
  o.temperature = 0;
  EXPECT_EQ(choose(logits, 0.0, o), 2);
}

TEST(Sample, RefusesNonsense) {
  Trainer trainer(tiny_trainer());
  const auto refused = [&](std::vector<int32_t> prompt, SampleOptions o) {
    try {
      sample(trainer.model(), prompt, o);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_EQ(refused({}, {}), "a prompt without tokens, expected at least one");
  EXPECT_EQ(refused({16}, {}), "token 16 in a prompt, expected 0 to 15");
  SampleOptions o;
  o.temperature = -1;
  EXPECT_EQ(refused({1}, o), "temperature -1, expected a number of at least 0");
}

}  // namespace
}  // namespace gallop::gpt
