// SPDX-License-Identifier: MIT
#include "lab/trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gallop/error.h"

namespace gallop::lab {
namespace {

using testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

TrialSpec small() {
  TrialSpec s;
  s.model = "nano:layers=1:width=32:heads=2:context=16:vocabulary=64";
  s.data = "synthetic:vocabulary=64,branching=2";
  s.hyper = {{"lr", 1e-2}};
  s.steps = 40;
  s.batch = 4;
  s.eval_every = 10;
  s.eval_batches = 2;
  s.threads = 1;
  return s;
}

TEST(Trial, RunsToItsEnd) {
  std::vector<int64_t> told;
  const TrialResult r = run_trial(small(), [&](const TrialPoint& p) { told.push_back(p.step); });
  EXPECT_EQ(r.end, TrialEnd::finished) << r.message;
  EXPECT_EQ(told, (std::vector<int64_t>{10, 20, 30, 40}));
  ASSERT_EQ(r.points.size(), 4U);
  EXPECT_LT(r.points[3].validation, r.points[0].validation);
  EXPECT_EQ(r.final_validation(), r.points[3].validation);
  EXPECT_GT(r.points[3].accuracy, 2.0 / 64);  // a guess would have one of 64
  EXPECT_EQ(r.final_accuracy(), r.points[3].accuracy);
  EXPECT_LE(r.best_validation(), r.final_validation());
  EXPECT_EQ(r.time_to_target_s(), kInf);  // it had none
  EXPECT_GT(r.points[0].train_s, 0);
  for (size_t i = 1; i < 4; ++i) EXPECT_GT(r.points[i].train_s, r.points[i - 1].train_s);
  EXPECT_DOUBLE_EQ(r.train_s, r.points[3].train_s);  // evaluations are not on that clock
  EXPECT_GT(r.evaluate_s, 0);
  EXPECT_GT(r.prepare_s, 0);
  EXPECT_EQ(r.steps, 40);
  EXPECT_GT(r.memory_mb, 0);
}

TEST(Trial, EndsAtItsTarget) {
  TrialSpec s = small();
  const double start = run_trial(s).points[0].validation;
  s.target = start;
  const TrialResult r = run_trial(s);
  EXPECT_EQ(r.end, TrialEnd::reached);
  EXPECT_EQ(r.steps_to_target(), 10);
  EXPECT_EQ(r.time_to_target_s(), r.points.back().train_s);
  EXPECT_LE(r.steps, 11);
}

TEST(Trial, WhatIsMissedIsInfinite) {
  TrialSpec s = small();
  s.target = 0.001;
  const TrialResult r = run_trial(s);
  EXPECT_EQ(r.end, TrialEnd::missed);
  EXPECT_EQ(r.time_to_target_s(), kInf);
  EXPECT_EQ(r.steps_to_target(), kInf);
  EXPECT_LT(r.final_validation(), kInf);
}

TEST(Trial, ALimitEndsIt) {
  TrialSpec s = small();
  s.steps = 1000000;
  s.limit_s = 0.02;
  const TrialResult r = run_trial(s);
  EXPECT_EQ(r.end, TrialEnd::timed_out);
  EXPECT_LT(r.steps, 1000000);
  EXPECT_GE(r.train_s, 0.02);
}

TEST(Trial, DivergenceIsAnOutcome) {
  TrialSpec s = small();
  s.optimizer = "sgd";
  s.hyper = {{"lr", 1e30}};
  const TrialResult r = run_trial(s);
  EXPECT_EQ(r.end, TrialEnd::diverged);
  EXPECT_EQ(r.final_validation(), kInf);
  EXPECT_EQ(r.final_accuracy(), 0);
}

TEST(Trial, SoIsTooLittleMemory) {
  TrialSpec s = small();
  s.model = "10B";
  s.data = "synthetic:vocabulary=10000";
  s.batch = 100000;
  const TrialResult r = run_trial(s);
  EXPECT_EQ(r.end, TrialEnd::oom);
  EXPECT_THAT(r.message, HasSubstr("more than"));
}

TEST(Trial, AndWhatMakesNoSense) {
  TrialSpec s = small();
  s.optimizer = "adamx";
  const TrialResult r = run_trial(s);
  EXPECT_EQ(r.end, TrialEnd::failed);
  EXPECT_THAT(r.message, HasSubstr("adamx"));
  s = small();
  s.min_length = 17;
  EXPECT_THAT(run_trial(s).message, HasSubstr("a smallest length of 17 tokens"));
}

TEST(Trial, MayHaveShorterSequences) {
  TrialSpec s = small();
  s.steps = 10;
  const double whole = run_trial(s).final_validation();
  s.min_length = 4;
  const TrialResult r = run_trial(s);
  EXPECT_EQ(r.end, TrialEnd::finished) << r.message;
  EXPECT_NE(r.final_validation(), whole);
}

TEST(Trial, SeedsOfParametersAndDataAreApart) {
  TrialSpec s = small();
  s.steps = 10;
  const double loss = run_trial(s).final_validation();
  EXPECT_EQ(run_trial(s).final_validation(), loss);
  s.seed = 2;
  const double other = run_trial(s).final_validation();
  EXPECT_NE(other, loss);
  s.data_seed = 2;
  EXPECT_NE(run_trial(s).final_validation(), other);
}

TEST(Trial, TravelsAsJson) {
  TrialSpec s = small();
  s.hyper = {{"lr", 0.1}, {"beta1", 1.0 / 3}};
  s.target = 2.5;
  s.seed = std::numeric_limits<uint64_t>::max();
  s.min_length = 5;
  const TrialSpec back = spec_from(Json::parse(dump(to_json(s))));
  EXPECT_EQ(to_json(back), to_json(s));
  EXPECT_EQ(back.hyper, s.hyper);
  EXPECT_EQ(back.seed, s.seed);
  EXPECT_EQ(back.target, s.target);
  EXPECT_EQ(back.min_length, 5);
  EXPECT_FALSE(back.limit_s);
  Json without = to_json(s);
  without.erase("min_length");
  EXPECT_EQ(spec_from(without).min_length, 0);

  TrialResult r;
  r.end = TrialEnd::diverged;
  r.message = "x\ny";
  r.points = {{10, 0.5, 3.25, kInf, 0.125}, {20, 1, std::nan(""), -1}};
  const TrialResult again = result_from(Json::parse(dump(to_json(r))));
  EXPECT_EQ(again.end, r.end);
  EXPECT_EQ(again.message, r.message);
  ASSERT_EQ(again.points.size(), 2U);
  EXPECT_EQ(again.points[0].validation, kInf);
  EXPECT_TRUE(std::isnan(again.points[1].loss));
  EXPECT_EQ(again.points[0].accuracy, 0.125);
  EXPECT_TRUE(std::isnan(again.points[1].accuracy));
  Json earlier = to_json(r);
  earlier["points"] = Json::array({Json::array({10, 0.5, 3.25, 3.5})});
  EXPECT_TRUE(std::isnan(result_from(earlier).points.at(0).accuracy));
  EXPECT_THROW(spec_from(Json::object()), Error);
  EXPECT_THROW(result_from(Json{{"end", "won"}}), Error);
}

TEST(Trial, WatchedItSaysWhatItTakes) {
  TrialSpec s = small();
  s.steps = 5;
  s.eval_every = 0;
  EXPECT_FALSE(run_trial(s).usage);
  s.watch = true;
  const TrialResult r = run_trial(s);
  ASSERT_TRUE(r.usage);
  const TrialUsage& u = *r.usage;
  ASSERT_EQ(u.step_s.size(), 5U);
  EXPECT_DOUBLE_EQ(u.later_step_s(), (u.step_s[2] + u.step_s[3] + u.step_s[4]) / 3);
  EXPECT_GT(u.data_s, 0);
  EXPECT_GT(u.prepare_s, 0);
  EXPECT_GT(u.total_s, u.prepare_s + u.step_s[2] + u.step_s[3] + u.step_s[4]);
  double classes_mb = 0;
  for (const auto& [name, mb] : r.class_mb) classes_mb += mb;
  EXPECT_NEAR(classes_mb, r.memory_mb, 1e-9);
  EXPECT_GT(u.host_mb, classes_mb);
  EXPECT_TRUE(u.cpu_util);
  EXPECT_FALSE(u.gpu_util || u.driver_mb);

  const TrialResult again = result_from(Json::parse(dump(to_json(r))));
  ASSERT_TRUE(again.usage);
  EXPECT_EQ(again.usage->step_s, u.step_s);
  EXPECT_EQ(again.class_mb, r.class_mb);
  EXPECT_EQ(again.usage->cpu_util, u.cpu_util);
  EXPECT_FALSE(again.usage->gpu_util);
  EXPECT_TRUE(spec_from(to_json(s)).watch);
}

TEST(Trial, ResultsFromBeforeSpikesWereCountedAreRead) {
  TrialResult r;
  r.spikes = 3;
  r.worst_spike = 1.5;
  Json json = to_json(r);
  EXPECT_EQ(result_from(json).spikes, 3);
  EXPECT_EQ(result_from(json).worst_spike, 1.5);
  json.erase("spikes");
  json.erase("worst_spike");
  EXPECT_EQ(result_from(json).spikes, 0);
}

TEST(Trial, IsKnownByWhatItDoes) {
  TrialSpec a = small(), b = small();
  b.threads = 7;
  EXPECT_EQ(trial_hash(a), trial_hash(b));
  b.min_length = 3;
  EXPECT_NE(trial_hash(a), trial_hash(b));
  b.min_length = 0;
  b.hyper[0].second = 1e-3;
  EXPECT_NE(trial_hash(a), trial_hash(b));
}

}  // namespace
}  // namespace gallop::lab
