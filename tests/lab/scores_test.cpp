// SPDX-License-Identifier: MIT
#include "lab/scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gallop/error.h"

namespace gallop::lab {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using Values = std::vector<std::vector<double>>;

void add(std::vector<Outcome>& race, const std::string& contender, const std::string& workload,
         const std::vector<double>& times) {
  for (const double time : times) race.push_back({contender, workload, race.size(), time});
}

std::string error_of(const std::vector<Outcome>& race) {
  try {
    performance_profiles(race);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(PerformanceProfiles, RefuseWhatIsNoRace) {
  std::vector<Outcome> race;
  add(race, "adamw", "gpt2", {1, 2});
  race.push_back(race.front());
  EXPECT_EQ(error_of(race),
            "adamw on gpt2 with seed 0 came twice, expected one outcome for each seed");
  race.back() = {"adamw", "gpt2", 9, kNan};
  EXPECT_EQ(error_of(race),
            "time of adamw on gpt2 with seed 9 is nan s, expected one above 0, or infinity");
  race.back().time_to_target_s = 0;
  EXPECT_NE(error_of(race), "no error");
}

std::vector<Outcome> three_workloads() {
  std::vector<Outcome> race;
  add(race, "adamw", "a", {9, 10, 11});
  add(race, "adamw", "b", {20});
  add(race, "adamw", "c", {kInf});
  add(race, "lion", "a", {20});
  add(race, "lion", "b", {10});
  add(race, "lion", "c", {30});
  return race;
}

TEST(PerformanceProfiles, StepWhereAWorkloadComesWithinReach) {
  const auto profiles = performance_profiles(three_workloads());
  ASSERT_EQ(profiles.size(), 2U);
  const Profile& adamw = profiles[0];
  ASSERT_EQ(adamw.steps.size(), 2U);
  EXPECT_EQ(adamw.steps[0].tau, 1);
  EXPECT_DOUBLE_EQ(adamw.steps[0].share, 1.0 / 3);
  EXPECT_EQ(adamw.steps[1].tau, 2);
  EXPECT_DOUBLE_EQ(adamw.steps[1].share, 2.0 / 3);
  EXPECT_DOUBLE_EQ(adamw.share_within(1.999), 1.0 / 3);
  EXPECT_DOUBLE_EQ(adamw.share_within(2), 2.0 / 3);
  EXPECT_EQ(adamw.share_within(0.5), 0);
  // (1 * 1/3 + 2 * 2/3) / 3 and (1 * 2/3 + 2 * 1) / 3.
  EXPECT_DOUBLE_EQ(adamw.score, 5.0 / 9);
  EXPECT_DOUBLE_EQ(profiles[1].score, 8.0 / 9);
}

TEST(PerformanceProfiles, EndAtTauMax) {
  const auto profiles = performance_profiles(three_workloads(), 1.5);
  EXPECT_EQ(profiles[0].steps.size(), 1U);
  EXPECT_DOUBLE_EQ(profiles[0].score, 1.0 / 3);
  EXPECT_DOUBLE_EQ(profiles[1].score, 2.0 / 3);
  EXPECT_THROW(performance_profiles(three_workloads(), 1), Error);
  EXPECT_THROW(performance_profiles(three_workloads(), kInf), Error);
}

TEST(PerformanceProfiles, CountWhatNobodySolvesAgainstAll) {
  std::vector<Outcome> race;
  add(race, "adamw", "a", {5});
  add(race, "adamw", "b", {kInf});
  add(race, "lion", "b", {kInf});
  const auto profiles = performance_profiles(race);
  EXPECT_DOUBLE_EQ(profiles[0].score, 0.5);
  EXPECT_EQ(profiles[1].score, 0);
  ASSERT_EQ(profiles[1].steps.size(), 1U);
  EXPECT_EQ(profiles[1].steps[0].share, 0);
}

TEST(WinProbabilities, AreOneForWhoIsAlwaysBest) {
  const auto wins = win_probabilities(Values{{1, 2, 3}, {4, 5}, {9}});
  EXPECT_EQ(wins, (std::vector<double>{1, 0, 0}));
}

TEST(WinProbabilities, ShareTies) {
  EXPECT_EQ(win_probabilities(Values{{2, 2}, {2}}), (std::vector<double>{0.5, 0.5}));
  // Medians of two draws of {1, 3}: 1, 2 and 3 in 1, 2 and 1 of 4 cases, against 2.
  const auto wins = win_probabilities(Values{{1, 3}, {2}});
  EXPECT_NEAR(wins[0], 0.5, 0.02);
  EXPECT_NEAR(wins[0] + wins[1], 1, 1e-12);
}

TEST(WinProbabilities, FollowFromTheOddsOfResamples) {
  // The median of three draws of {1, 1, 4} is 4 when at least two are: 7 of 27.
  EXPECT_NEAR(win_probabilities(Values{{1, 1, 4}, {2}})[0], 20.0 / 27, 0.02);
}

TEST(WinProbabilities, TakeWhatDivergedAsWorst) {
  EXPECT_EQ(win_probabilities(Values{{kNan, kNan}, {1e30}}), (std::vector<double>{0, 1}));
  EXPECT_EQ(win_probabilities(Values{{kNan}, {kInf}}), (std::vector<double>{0, 0}));
}

TEST(WinProbabilities, DependOnTheSeedAlone) {
  const Values values = {{1, 2, 3, 4}, {1.5, 2.5, 2.6, 3.5}};
  EXPECT_EQ(win_probabilities(values, {.seed = 3}), win_probabilities(values, {.seed = 3}));
  EXPECT_NE(win_probabilities(values, {.seed = 3}), win_probabilities(values, {.seed = 4}));
}

TEST(WinProbabilities, RefuseContendersWithoutValues) {
  EXPECT_THROW(win_probabilities(Values{{1}, {}}), Error);
  EXPECT_THROW(win_probabilities(Values{{1}}, {.resamples = 0}), Error);
  EXPECT_TRUE(win_probabilities(Values{}).empty());
}

}  // namespace
}  // namespace gallop::lab
