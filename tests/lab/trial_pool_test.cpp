// SPDX-License-Identifier: MIT
#include "lab/trial_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "gallop/error.h"

namespace gallop::lab {
namespace {

using testing::HasSubstr;

TrialSpec small(int64_t steps = 20) {
  TrialSpec s;
  s.model = "nano:layers=1:width=32:heads=2:context=16:vocabulary=64";
  s.data = "synthetic:vocabulary=64,branching=2";
  s.steps = steps;
  s.batch = 4;
  s.eval_every = 10;
  s.eval_batches = 2;
  s.threads = 1;
  return s;
}

TrialPoolOptions pool(int jobs = 1) {
  TrialPoolOptions o;
  o.program = {GALLOP_PROGRAM, "trial"};
  o.jobs = jobs;
  return o;
}

struct Seen {
  std::map<size_t, TrialResult> results;
  std::map<size_t, int> points;
  std::vector<size_t> begun;
  TrialEvents events() {
    TrialEvents e;
    e.begin = [this](size_t i) { begun.push_back(i); };
    e.point = [this](size_t i, const TrialPoint&) { ++points[i]; };
    e.end = [this](size_t i, const TrialResult& r) { results[i] = r; };
    return e;
  }
};

TEST(TrialPool, RunsEveryTrialOnceWithTheSameResultAsHere) {
  std::vector<TrialSpec> trials;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    trials.push_back(small());
    trials.back().seed = seed;
  }
  Seen seen;
  run_trials(trials, pool(2), seen.events());
  EXPECT_EQ(seen.begun, (std::vector<size_t>{0, 1, 2, 3, 4}));
  ASSERT_EQ(seen.results.size(), 5U);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(seen.results[i].end, TrialEnd::finished) << seen.results[i].message;
    EXPECT_EQ(seen.points[i], 2);
  }
  EXPECT_EQ(seen.results[1].final_validation(), run_trial(trials[1]).final_validation());
}

TEST(TrialPool, AProcessThatEndsIsATrialThatIsLost) {
  TrialPoolOptions o = pool();
  o.program = {"/bin/sh", "-c", "read line; kill -9 $$"};
  Seen seen;
  run_trials(std::vector{small(), small()}, o, seen.events());
  ASSERT_EQ(seen.results.size(), 2U);
  EXPECT_EQ(seen.results[0].end, TrialEnd::lost);
  EXPECT_THAT(seen.results[0].message, HasSubstr("signal 9"));
  o.program = {"/no/such/program"};
  EXPECT_THROW(run_trials(std::vector{small()}, o, seen.events()), Error);
}

TEST(TrialPool, WhatTakesTooLongTimesOut) {
  TrialPoolOptions o = pool(2);
  o.timeout_s = 0.5;
  o.program = {"/bin/sh", "-c", "read line; exec sleep 100"};
  Seen seen;
  run_trials(std::vector{small(), small()}, o, seen.events());
  ASSERT_EQ(seen.results.size(), 2U);
  EXPECT_EQ(seen.results[1].end, TrialEnd::timed_out);
  EXPECT_FALSE(std::isfinite(seen.results[1].final_validation()));
  EXPECT_THAT(seen.results[1].message, HasSubstr("ended after 0.5 s"));
}

TEST(TrialPool, TrialsWaitForTheirTurn) {
  std::vector<int> asked(3);
  Seen seen;
  TrialEvents events = seen.events();
  events.turn = [&](size_t i) {
    ++asked[i];
    if (i == 0) return asked[0] < 3 ? Turn::later : Turn::now;
    return i == 1 ? Turn::never : Turn::now;
  };
  run_trials(std::vector{small(), small(), small()}, pool(), events);
  EXPECT_EQ(seen.begun, (std::vector<size_t>{2, 0}));
  EXPECT_EQ(seen.results.size(), 2U);
}

TEST(TrialPool, WhatIsStoppedIsNoResult) {
  Seen seen;
  TrialEvents events = seen.events();
  events.stop = [&] { return seen.points[0] >= 1; };
  run_trials(std::vector{small(100000000), small()}, pool(), events);
  EXPECT_TRUE(seen.results.empty());
}

TEST(TrialPool, NoTrialsAreDoneAtOnceAndNoJobsAreRefused) {
  Seen seen;
  run_trials({}, pool(4), seen.events());
  EXPECT_TRUE(seen.begun.empty());
  EXPECT_THROW(run_trials(std::vector{small()}, pool(0), seen.events()), Error);
}

TEST(TrialPool, WhatIsNoTrialIsRefused) {
  TrialPoolOptions o = pool();
  o.program = {"/bin/sh", "-c", "read line; echo nonsense | " GALLOP_PROGRAM " trial 2>/dev/null"};
  Seen seen;
  run_trials(std::vector{small()}, o, seen.events());
  EXPECT_THAT(seen.results[0].message, HasSubstr("exit code 1"));
}

}  // namespace
}  // namespace gallop::lab
