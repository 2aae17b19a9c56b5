// SPDX-License-Identifier: MIT
#include "bench/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "gallop/error.h"

namespace gallop::bench {
namespace {

// A clock that only moves when a sample says so.
struct FakeClock {
  double seconds = 0;
  std::function<double()> reader() {
    return [this] { return seconds; };
  }
};

SamplerOptions options_with(FakeClock& clock) {
  SamplerOptions options;
  options.now = clock.reader();
  return options;
}

Contender constant(std::string name, double seconds = 1e-3) {
  return {std::move(name), [seconds] { return seconds; }};
}

// 1, 2, 3, 4, 5, ... times a millisecond, wrapping at 10: far too wide for any spread target.
Contender noisy(std::string name) {
  return {std::move(name), [n = 0]() mutable { return 1e-3 * (1 + n++ * 7 % 10); }};
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Measure, StopsAConstantContenderForItsSpreadAtTheMinimumNumberOfSamples) {
  FakeClock clock;
  SamplerOptions options = options_with(clock);
  options.min_samples = 12;
  std::vector<Contender> contenders = {constant("steady", 2e-3)};
  const auto results = measure(contenders, options);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].name, "steady");
  EXPECT_EQ(results[0].stopped_by, "spread");
  EXPECT_EQ(results[0].samples, std::vector<double>(12, 2e-3));
  EXPECT_EQ(results[0].summary.n, 12U);
  EXPECT_EQ(results[0].summary.median, 2e-3);
  EXPECT_EQ(results[0].relative_spread, 0);
}

TEST(Measure, WarmsUpUntilTheMedianOfFiveStandsStill) {
  FakeClock clock;
  int calls = 0;
  // 20 ms falling by 1 ms a call, from the tenth call on 10 ms.
  std::vector<Contender> contenders = {
      {"drifting", [&calls] { return 1e-3 * std::max(10, 20 - ++calls); }}};
  const auto results = measure(contenders, options_with(clock));
  // Call 10 gives the first 10 ms. The last five are all 10 ms from call 14 on, but their median is
  // 10 ms from call 12 on, and so is that of the five before from call 17 on.
  EXPECT_EQ(results[0].warmup_samples, 17);
  EXPECT_EQ(results[0].samples, std::vector<double>(10, 10e-3));
}

TEST(Measure, EndsTheWarmUpOfAnUnstableContenderAtItsTimeLimit) {
  FakeClock clock;
  SamplerOptions options = options_with(clock);
  options.warmup_limit_s = 4;
  std::vector<Contender> contenders = {{"growing", [&clock, value = 1.0]() mutable {
                                          clock.seconds += 0.25;
                                          return value *= 2;
                                        }}};
  EXPECT_EQ(measure(contenders, options)[0].warmup_samples, 16);
  options.warmup_limit_s = 0;
  EXPECT_EQ(measure(contenders, options)[0].warmup_samples, 0);
}

TEST(Measure, StopsNoiseAtTheMaximumNumberOfSamples) {
  FakeClock clock;
  SamplerOptions options = options_with(clock);
  options.max_samples = 137;
  std::vector<Contender> contenders = {noisy("noise")};
  const auto results = measure(contenders, options);
  EXPECT_EQ(results[0].stopped_by, "max samples");
  EXPECT_EQ(results[0].samples.size(), 137U);
  EXPECT_GT(results[0].relative_spread, options.spread_target);
  EXPECT_DOUBLE_EQ(results[0].relative_spread, relative_halfwidth_of_median(results[0].samples));
}

TEST(Measure, StopsNoiseAtTheTimeLimit) {
  FakeClock clock;
  SamplerOptions options = options_with(clock);
  options.warmup_limit_s = 0;
  options.time_limit_s = 8;
  std::vector<Contender> contenders = {{"noise", [&clock, n = 0]() mutable {
                                          clock.seconds += 0.25;
                                          return 1.0 + n++ % 3;
                                        }}};
  const auto results = measure(contenders, options);
  EXPECT_EQ(results[0].stopped_by, "time limit");
  EXPECT_EQ(results[0].samples.size(), 32U);
}

TEST(Measure, TakesTheMinimumNumberOfSamplesEvenPastTheTimeLimit) {
  FakeClock clock;
  SamplerOptions options = options_with(clock);
  options.warmup_limit_s = 0;
  options.min_samples = 15;
  std::vector<Contender> contenders = {{"slow", [&clock, n = 0]() mutable {
                                          clock.seconds += 60;
                                          return 60.0 * (1 + n++ % 2);
                                        }}};
  const auto results = measure(contenders, options);
  EXPECT_EQ(results[0].stopped_by, "time limit");
  EXPECT_EQ(results[0].samples.size(), 15U);
}

TEST(Measure, ChargesEachContenderOnlyForItsOwnTime) {
  FakeClock clock;
  SamplerOptions options = options_with(clock);
  options.warmup_limit_s = 0;
  options.max_samples = 50;
  std::vector<Contender> contenders = {noisy("quick"), {"slow", [&clock, n = 0]() mutable {
                                                          clock.seconds += 1;
                                                          return 1.0 + n++ % 2;
                                                        }}};
  const auto results = measure(contenders, options);
  EXPECT_EQ(results[0].stopped_by, "max samples");
  EXPECT_EQ(results[1].stopped_by, "time limit");
}

// The order in which the contenders a, b, c and d took their samples.
std::string order_of_calls(uint64_t seed) {
  FakeClock clock;
  SamplerOptions options = options_with(clock);
  options.seed = seed;
  options.warmup_limit_s = 0;
  options.min_samples = options.max_samples = 20;
  std::string calls;
  std::vector<Contender> contenders;
  for (const char name : {'a', 'b', 'c', 'd'}) {
    contenders.push_back({std::string(1, name), [&calls, name] {
                            calls += name;
                            return 1e-3;
                          }});
  }
  measure(contenders, options);
  return calls;
}

TEST(Measure, RunsEveryContenderOncePerRoundInChangingOrder) {
  const std::string calls = order_of_calls(1);
  ASSERT_EQ(calls.size(), 80U);
  std::set<std::string> orders;
  for (size_t round = 0; round < 20; ++round) {
    std::string order = calls.substr(4 * round, 4);
    orders.insert(order);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, "abcd") << "in round " << round;
  }
  EXPECT_GT(orders.size(), 5U);
}

TEST(Measure, PutsEveryContenderFirstNowAndThen) {
  const std::string calls = order_of_calls(1);
  std::set<char> first;
  for (size_t round = 0; round < 20; ++round) first.insert(calls[4 * round]);
  EXPECT_EQ(first.size(), 4U);
}

TEST(Measure, OrdersTheCallsByTheSeedAlone) {
  EXPECT_EQ(order_of_calls(7), order_of_calls(7));
  EXPECT_NE(order_of_calls(7), order_of_calls(8));
}

TEST(Measure, LeavesFinishedContendersOutOfLaterRoundsAndReportsInTheGivenOrder) {
  FakeClock clock;
  SamplerOptions options = options_with(clock);
  options.max_samples = 40;
  std::vector<Contender> contenders = {noisy("noise"), constant("steady")};
  std::vector<size_t> rounds;
  const auto results =
      measure(contenders, options, [&rounds](size_t round) { rounds.push_back(round); });
  EXPECT_EQ(results[0].name, "noise");
  EXPECT_EQ(results[0].samples.size(), 40U);
  EXPECT_EQ(results[1].name, "steady");
  EXPECT_EQ(results[1].samples.size(), 10U);
  ASSERT_EQ(rounds.size(), 40U);
  EXPECT_EQ(rounds.front(), 1U);
  EXPECT_EQ(rounds.back(), 40U);
}

TEST(Measure, OfNoContendersIsEmpty) {
  std::vector<Contender> none;
  EXPECT_TRUE(measure(none, {}).empty());
}

TEST(Measure, NamesTheContenderWhoseSampleIsNoTime) {
  FakeClock clock;
  std::vector<Contender> contenders = {
      constant("broken", std::numeric_limits<double>::quiet_NaN())};
  EXPECT_EQ(error_of([&] { measure(contenders, options_with(clock)); }),
            "contender 'broken' returned a sample of nan s, expected a finite number of at least "
            "0");
}

TEST(Measure, RefusesOptionsAndContendersThatMakeNoSense) {
  std::vector<Contender> contenders = {{"hollow", nullptr}};
  SamplerOptions options;
  EXPECT_EQ(error_of([&] { measure(contenders, options); }),
            "contender 'hollow' has no sample function, expected one");
  options.max_samples = 3;
  EXPECT_EQ(error_of([&] { measure(contenders, options); }),
            "max_samples is 3, expected at least min_samples, which is 10");
  options = {};
  options.min_samples = 0;
  EXPECT_EQ(error_of([&] { measure(contenders, options); }),
            "min_samples is 0, expected at least 1");
  options = {};
  options.spread_target = -1;
  EXPECT_EQ(error_of([&] { measure(contenders, options); }),
            "spread_target is -1, expected a finite number of at least 0");
}

TEST(Batch, DividesTheTimeByTheIterations) {
  FakeClock clock;
  const Batch batch{
      .run = [&clock](int n) { clock.seconds += 0.5 * n; }, .iterations = 8, .now = clock.reader()};
  EXPECT_DOUBLE_EQ(batch(), 0.5);
}

TEST(CalibrateIterations, MakesARunLastTheMinimumButNotMuchLonger) {
  FakeClock clock;
  const auto run = [&clock](int n) { clock.seconds += 1e-8 * n; };
  const int iterations = calibrate_iterations(run, 200e-6, clock.reader());
  EXPECT_GE(iterations, 20000);
  EXPECT_LE(iterations, 30000);
}

TEST(CalibrateIterations, IsOneForARunThatIsLongEnough) {
  FakeClock clock;
  EXPECT_EQ(calibrate_iterations([&](int n) { clock.seconds += n; }, 200e-6, clock.reader()), 1);
}

TEST(CalibrateIterations, IsNotFooledByASlowFirstCall) {
  FakeClock clock;
  bool first = true;
  const auto run = [&](int n) {
    clock.seconds += 1e-6 * n + (first ? 1.0 : 0.0);
    first = false;
  };
  EXPECT_GE(calibrate_iterations(run, 200e-6, clock.reader()), 200);
}

TEST(CalibrateIterations, EndsForARunThatTakesNoTime) {
  FakeClock clock;
  EXPECT_EQ(calibrate_iterations([](int) {}, 200e-6, clock.reader()), 1 << 30);
}

TEST(SecondsNow, NeverGoesBack) {
  const double before = seconds_now();
  EXPECT_LE(before, seconds_now());
}

}  // namespace
}  // namespace gallop::bench
