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
  const TrialSpec back = spec_from(Json::parse(dump(to_json(s))));
  EXPECT_EQ(to_json(back), to_json(s));
  EXPECT_EQ(back.hyper, s.hyper);
  EXPECT_EQ(back.seed, s.seed);
  EXPECT_EQ(back.target, s.target);
  EXPECT_FALSE(back.limit_s);

  TrialResult r;
  r.end = TrialEnd::diverged;
  r.message = "x\ny";
  r.points = {{10, 0.5, 3.25, kInf}, {20, 1, std::nan(""), -1}};
  const TrialResult again = result_from(Json::parse(dump(to_json(r))));
  EXPECT_EQ(again.end, r.end);
  EXPECT_EQ(again.message, r.message);
  ASSERT_EQ(again.points.size(), 2U);
  EXPECT_EQ(again.points[0].validation, kInf);
  EXPECT_TRUE(std::isnan(again.points[1].loss));
  EXPECT_THROW(spec_from(Json::object()), Error);
  EXPECT_THROW(result_from(Json{{"end", "won"}}), Error);
}

TEST(Trial, IsKnownByWhatItDoes) {
  TrialSpec a = small(), b = small();
  b.threads = 7;
  EXPECT_EQ(trial_hash(a), trial_hash(b));
  b.hyper[0].second = 1e-3;
  EXPECT_NE(trial_hash(a), trial_hash(b));
}

}  // namespace
}  // namespace gallop::lab
