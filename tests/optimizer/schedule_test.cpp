// SPDX-License-Identifier: MIT
#include "gallop/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gallop/error.h"

namespace gallop {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kTight = 1e-14;

const std::vector<ScheduleKind> kKinds = {
    ScheduleKind::constant, ScheduleKind::linear,      ScheduleKind::cosine,   ScheduleKind::wsd,
    ScheduleKind::step,     ScheduleKind::exponential, ScheduleKind::one_cycle};

// A valid schedule of each kind.
Schedule example(ScheduleKind kind, int64_t warmup = 0) {
  Schedule s;
  s.kind = kind;
  s.warmup_steps = warmup;
  s.total_steps = warmup + 10;
  if (kind == ScheduleKind::wsd) s.decay_steps = 4;
  if (kind == ScheduleKind::step) s.step_size = 3;
  return s;
}

void expect_values(const Schedule& s, int64_t first, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const int64_t k = first + static_cast<int64_t>(i);
    EXPECT_NEAR(schedule_factor(s, k), expected[i], kTight) << "k " << k;
  }
}

template <class Action>
void expect_refused(Action action, const std::string& part) {
  try {
    action();
    ADD_FAILURE() << "accepted, expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Schedule, DefaultIsAlwaysOne) {
  for (const int64_t k : {int64_t{0}, int64_t{1}, int64_t{1000000}, INT64_MAX}) {
    EXPECT_EQ(schedule_factor(Schedule{}, k), 1.0);
  }
}

TEST(Schedule, WarmUpRisesLinearlyBeforeEveryKind) {
  for (const ScheduleKind kind : kKinds) {
    expect_values(example(kind, 4), 0, {0.25, 0.5, 0.75, 1.0});
  }
}

TEST(Schedule, AfterWarmUpEveryKindRunsAsWithoutIt) {
  for (const ScheduleKind kind : kKinds) {
    for (int64_t k = 0; k < 15; ++k) {
      EXPECT_EQ(schedule_factor(example(kind, 7), k + 7), schedule_factor(example(kind), k))
          << to_string(kind) << " " << k;
    }
  }
}

TEST(Schedule, LinearFallsToFinalAndHolds) {
  Schedule s{.kind = ScheduleKind::linear, .total_steps = 4, .final_factor = 0.2};
  expect_values(s, 0, {1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2});
  EXPECT_EQ(schedule_factor(s, 4), 0.2);
  EXPECT_EQ(schedule_factor(s, INT64_MAX), 0.2);
}

TEST(Schedule, LinearMayRise) {
  const Schedule s{.kind = ScheduleKind::linear, .total_steps = 2, .final_factor = 3};
  expect_values(s, 0, {1.0, 2.0, 3.0, 3.0});
}

TEST(Schedule, CosineHasTheClosedFormOfAnnealing) {
  const Schedule s{.kind = ScheduleKind::cosine, .total_steps = 7, .final_factor = 0.1};
  for (int64_t k = 0; k <= 7; ++k) {
    const double expected = 0.1 + 0.9 * (1 + std::cos(kPi * static_cast<double>(k) / 7)) / 2;
    EXPECT_NEAR(schedule_factor(s, k), expected, kTight) << k;
  }
}

TEST(Schedule, CosineAtQuarterPointsAndPastItsEnd) {
  const Schedule s{.kind = ScheduleKind::cosine, .total_steps = 4};
  // (1 + cos(pi k / 4)) / 2 by hand
  expect_values(s, 0,
                {1.0, 0.853553390593273762, 0.5, 0.146446609406726238, 0.0, 0.0, 0.0, 0.0, 0.0});
  EXPECT_EQ(schedule_factor(s, 8), 0.0);  // and not up again, as a bare cosine would
}

TEST(Schedule, WsdIsStableThenFallsOverTheLastSteps) {
  const Schedule s{.kind = ScheduleKind::wsd,
                   .warmup_steps = 2,
                   .total_steps = 10,
                   .final_factor = 0.2,
                   .decay_steps = 4};
  expect_values(s, 0, {0.5, 1, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2});
}

TEST(Schedule, WsdMayFallDirectlyAfterWarmUp) {
  const Schedule s{
      .kind = ScheduleKind::wsd, .warmup_steps = 1, .total_steps = 3, .decay_steps = 2};
  expect_values(s, 0, {1.0, 1.0, 0.5, 0.0, 0.0});
}

TEST(Schedule, StepMultipliesEveryStepSize) {
  const Schedule s{.kind = ScheduleKind::step, .step_size = 3, .gamma = 0.5};
  expect_values(s, 0, {1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125});
}

TEST(Schedule, ExponentialMultipliesEveryStep) {
  const Schedule s{.kind = ScheduleKind::exponential, .gamma = 0.9};
  expect_values(s, 0, {1.0, 0.9, 0.81, 0.729, 0.6561});
}

TEST(Schedule, OneCycleRisesToOneAndFallsToItsEnd) {
  const Schedule s{.kind = ScheduleKind::one_cycle, .total_steps = 10};
  // Peak on step 0.3 * 10 - 1 = 2; then (1 + cos(pi j / 7)) / 2 of the way from 4e-6 to 1.
  EXPECT_NEAR(schedule_factor(s, 0), 1.0 / 25, kTight);
  EXPECT_NEAR(schedule_factor(s, 1), 0.52, kTight);
  EXPECT_NEAR(schedule_factor(s, 2), 1.0, kTight);
  for (int64_t k = 3; k < 10; ++k) {
    const double high = (1 + std::cos(kPi * static_cast<double>(k - 2) / 7)) / 2;
    EXPECT_NEAR(schedule_factor(s, k), 1.0 * high + 4e-6 * (1 - high), kTight) << k;
  }
  EXPECT_NEAR(schedule_factor(s, 9), 4e-6, 1e-18);
}

TEST(Schedule, OneCycleHasItsPeakBetweenSteps) {
  // Peak at 0.25 * 7 - 1 = 0.75: step 1 is already 0.25 of 5.25 steps down. Values computed apart.
  const Schedule s{.kind = ScheduleKind::one_cycle, .total_steps = 7, .pct_start = 0.25};
  expect_values(s, 0,
                {0.04, 0.9944154354509117, 0.8665264698111694, 0.6112620219362893,
                 0.31733221849885124, 0.08688426531955129, 4e-06});
}

TEST(Schedule, OneCycleUsesBothDivisors) {
  const Schedule s{.kind = ScheduleKind::one_cycle,
                   .total_steps = 20,
                   .div_factor = 10,
                   .final_div_factor = 100};
  EXPECT_NEAR(schedule_factor(s, 0), 0.1, kTight);
  EXPECT_NEAR(schedule_factor(s, 19), 0.001, kTight);
}

TEST(Schedule, OneCycleAtTheLimitsOfPctStart) {
  Schedule s{.kind = ScheduleKind::one_cycle, .total_steps = 5, .pct_start = 0};
  expect_values(
      s, 0, {0.904508879153485, 0.654509879153485, 0.3454941208465151, 0.09549512084651508, 4e-06});
  s.total_steps = 4;
  s.pct_start = 1;
  expect_values(s, 0, {0.04, 0.28, 0.76, 1.0, 1.0, 1.0});
  s.pct_start = 0.25;  // the peak is step 0
  EXPECT_EQ(schedule_factor(s, 0), 1.0);
}

TEST(Schedule, OneCycleHoldsItsLastValue) {
  const Schedule s{.kind = ScheduleKind::one_cycle, .total_steps = 10};
  for (const int64_t k : {int64_t{10}, int64_t{11}, int64_t{18}, INT64_MAX}) {
    EXPECT_EQ(schedule_factor(s, k), schedule_factor(s, 9)) << k;
  }
}

TEST(Schedule, RefusesNegativeSteps) {
  expect_refused([] { schedule_factor(Schedule{}, -1); }, "schedule step is -1");
}

TEST(Schedule, FactorRefusesAnInvalidSchedule) {
  const Schedule s{.kind = ScheduleKind::step};
  expect_refused([&] { schedule_factor(s, 0); }, "schedule step_size is 0, expected 1 or more");
}

TEST(Schedule, ValidateAcceptsOneOfEachKind) {
  for (const ScheduleKind kind : kKinds) {
    EXPECT_NO_THROW(validate(example(kind)));
    EXPECT_NO_THROW(validate(example(kind, 5)));
  }
}

TEST(Schedule, ValidateNamesTheFieldAndValue) {
  const auto refused = [](ScheduleKind kind, auto change, const std::string& part) {
    Schedule s = example(kind);
    change(s);
    expect_refused([&] { validate(s); }, part);
  };
  using K = ScheduleKind;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  refused(
      K::constant, [](Schedule& s) { s.warmup_steps = -1; }, "warmup_steps is -1");
  refused(
      K::constant, [](Schedule& s) { s.total_steps = -2; }, "total_steps is -2");
  for (const K kind : {K::linear, K::cosine, K::wsd, K::one_cycle}) {
    refused(
        kind, [](Schedule& s) { s.total_steps = 0; }, "total_steps is 0, expected more than");
    refused(
        kind, [](Schedule& s) { s.warmup_steps = 10; }, "more than warmup_steps, which is 10");
  }
  refused(
      K::wsd, [](Schedule& s) { s.decay_steps = 0; }, "decay_steps is 0, expected 1 to 10");
  refused(
      K::wsd, [](Schedule& s) { s.decay_steps = 11; }, "decay_steps is 11, expected 1 to 10");
  refused(
      K::step, [](Schedule& s) { s.step_size = 0; }, "step_size is 0");
  refused(
      K::step, [](Schedule& s) { s.gamma = 0; }, "gamma is 0");
  refused(
      K::exponential, [](Schedule& s) { s.gamma = -0.5; }, "gamma is -0.5");
  refused(
      K::exponential, [&](Schedule& s) { s.gamma = nan; }, "gamma is nan");
  refused(
      K::cosine, [](Schedule& s) { s.final_factor = -0.1; }, "final_factor is -0.1");
  refused(
      K::linear, [&](Schedule& s) { s.final_factor = inf; }, "final_factor is inf");
  refused(
      K::one_cycle, [](Schedule& s) { s.pct_start = 1.5; }, "pct_start is 1.5");
  refused(
      K::one_cycle, [](Schedule& s) { s.pct_start = -0.5; }, "pct_start is -0.5");
  refused(
      K::one_cycle, [](Schedule& s) { s.div_factor = 0; }, "div_factor is 0");
  refused(
      K::one_cycle, [](Schedule& s) { s.final_div_factor = -1; }, "final_div_factor is -1");
  refused(
      K::constant, [](Schedule& s) { s.kind = static_cast<K>(7); }, "kind is number 7");
  refused(
      K::constant, [](Schedule& s) { s.kind = static_cast<K>(-1); }, "kind is number -1");
}

TEST(Schedule, ValidateRefusesFieldsTheKindIgnores) {
  Schedule s = example(ScheduleKind::cosine);
  s.gamma = 0.5;
  expect_refused([&] { validate(s); },
                 "gamma is 0.5, expected its default 0.1 because kind cosine");
  s = example(ScheduleKind::constant);
  s.decay_steps = 3;
  expect_refused([&] { validate(s); }, "decay_steps is 3, expected its default 0");
}

TEST(Schedule, KindsHaveTheirNames) {
  const std::vector<std::string> names = {"constant", "linear",      "cosine",   "wsd",
                                          "step",     "exponential", "one-cycle"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(to_string(kKinds[i]), names[i]);
    EXPECT_EQ(schedule_kind(names[i]), kKinds[i]);
  }
  for (const char* wrong : {"", "Cosine", "one_cycle", "linear-warmup", "cosine "}) {
    expect_refused([&] { schedule_kind(wrong); }, std::string("schedule kind is '") + wrong +
                                                      "', expected one of constant linear");
  }
}

TEST(Schedule, TextFormNamesWhatDiffersFromTheDefaults) {
  EXPECT_EQ(format(Schedule{}), "constant");
  const Schedule s{
      .kind = ScheduleKind::cosine, .warmup_steps = 100, .total_steps = 1000, .final_factor = 0.1};
  EXPECT_EQ(format(s), "cosine:warmup=100,total=1000,final=0.1");
  EXPECT_EQ(parse_schedule("cosine:warmup=100,total=1000,final=0.1"), s);
  EXPECT_EQ(parse_schedule("cosine:final=1e-1,total=1000,warmup=100"), s);
  EXPECT_EQ(parse_schedule("constant"), Schedule{});
}

TEST(Schedule, TextFormSetsEveryField) {
  const Schedule wsd = parse_schedule("wsd:warmup=1,total=9,decay=5,final=0.5");
  EXPECT_EQ(wsd, (Schedule{.kind = ScheduleKind::wsd,
                           .warmup_steps = 1,
                           .total_steps = 9,
                           .final_factor = 0.5,
                           .decay_steps = 5}));
  EXPECT_EQ(parse_schedule("step:step=4,gamma=0.25"),
            (Schedule{.kind = ScheduleKind::step, .step_size = 4, .gamma = 0.25}));
  EXPECT_EQ(parse_schedule("one-cycle:total=8,pct=0.5,div=4,final_div=16"),
            (Schedule{.kind = ScheduleKind::one_cycle,
                      .total_steps = 8,
                      .pct_start = 0.5,
                      .div_factor = 4,
                      .final_div_factor = 16}));
}

TEST(Schedule, TextFormIsExact) {
  for (const double value : {1.0 / 3, 0.1 + 0.2, 1e-300, 5e-324, 0.30000000000000004, 123456.789,
                             std::nextafter(1.0, 2.0), std::numeric_limits<double>::max()}) {
    Schedule s = example(ScheduleKind::cosine, INT64_C(4611686018427387904));
    s.final_factor = value;
    EXPECT_EQ(parse_schedule(format(s)), s) << format(s);
    s = example(ScheduleKind::step);
    s.gamma = value;
    s.step_size = INT64_MAX;
    EXPECT_EQ(parse_schedule(format(s)), s) << format(s);
    s = example(ScheduleKind::one_cycle);
    s.pct_start = value < 1 ? value : 1;
    s.div_factor = s.final_div_factor = value;
    EXPECT_EQ(parse_schedule(format(s)), s) << format(s);
  }
  for (const ScheduleKind kind : kKinds) {
    EXPECT_EQ(parse_schedule(format(example(kind, 3))), example(kind, 3));
  }
}

TEST(Schedule, TextFormRefusesWhatItDoesNotKnow) {
  const auto refused = [](const std::string& text, const std::string& part) {
    expect_refused([&] { parse_schedule(text); }, part);
  };
  refused("", "schedule kind is ''");
  refused(":total=1", "schedule kind is ''");
  refused("cosin:total=1", "schedule kind is 'cosin'");
  refused("cosine", "total_steps is 0");
  refused("cosine:", "schedule field is '', expected key=value");
  refused("cosine:total=10,", "schedule field is '', expected key=value");
  refused("cosine:total", "schedule field is 'total', expected key=value");
  refused("cosine:total=", "schedule total is '', expected a whole number");
  refused("cosine:total=1.5", "schedule total is '1.5', expected a whole number");
  refused("cosine:total=10x", "schedule total is '10x'");
  refused("cosine:total= 10", "schedule total is ' 10'");
  refused("cosine:total=9223372036854775808", "schedule total is '9223372036854775808'");
  refused("cosine:total=10,final=a", "schedule final is 'a', expected a number");
  refused("cosine:total=10,final=nan", "final_factor is nan");
  refused("cosine:total=10,final=1e999", "schedule final is '1e999'");
  refused("cosine:total=10,total=10", "has total twice");
  refused("cosine:total=10,Final=1", "schedule field is 'Final', expected one of warmup total");
  refused("cosine:total=10,gamma=0.5", "gamma is 0.5, expected its default");
}

}  // namespace
}  // namespace gallop
