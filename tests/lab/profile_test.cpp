// SPDX-License-Identifier: MIT
#include "lab/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "gallop/error.h"
#include "lab/figures.h"
#include "lab/profile_figures.h"

namespace gallop::lab {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

ProfileOptions options(const std::vector<std::string>& names, int64_t repeats) {
  ProfileOptions o;
  for (const std::string& name : names) o.contenders.push_back(parse_contender(name));
  o.repeats = repeats;
  o.base.steps = 4;
  o.base.batch = 10;
  o.base.context = 100;
  return o;
}

// Later steps take `step_s`, that is 1000 / step_s tokens a second.
TrialResult made_up(double step_s, double state_mb = 8) {
  TrialResult r;
  r.end = TrialEnd::finished;
  TrialUsage& u = r.usage.emplace();
  u.step_s = {5 * step_s, 3 * step_s, step_s, step_s};
  u.prepare_s = 2;
  u.total_s = 2 + 4 * step_s;
  u.data_s = 0.1;
  u.host_mb = 100;
  u.cpu_util = 90;
  r.class_mb = {{"parameters", 4}, {"gradients", 4}, {"state", state_mb}};
  r.memory_mb = 8 + state_mb;
  return r;
}

// Of each contender, by repeat.
std::vector<ProfileRun> runs_of(const ProfileOptions& o,
                                const std::vector<std::vector<double>>& step_s) {
  std::vector<ProfileRun> runs = plan_profile(o);
  for (ProfileRun& r : runs) {
    const std::vector<double>& mine = step_s[r.contender];
    r.result = made_up(mine[static_cast<size_t>(r.repeat)]);
  }
  return runs;
}

std::string read_all(const ProfileOptions& o, const std::vector<ProfileRun>& runs) {
  std::string all;
  for (const std::string& line : read_profile(o, runs)) all += line + "\n";
  return all;
}

TEST(Profile, RunsAllOnceBeforeAnyRunsAgainEveryTimeWithNewSeeds) {
  ProfileOptions o = options({"adamw", "lion:8bit", "sgd"}, 3);
  o.first_seed = 7;
  const std::vector<ProfileRun> runs = plan_profile(o);
  ASSERT_EQ(runs.size(), 9U);
  std::vector<size_t> order;
  for (const ProfileRun& r : runs) order.push_back(r.contender);
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 1, 2, 0, 2, 0, 1}));
  EXPECT_EQ(runs[1].spec.optimizer, "lion");
  EXPECT_EQ(runs[1].spec.state, "8bit");
  EXPECT_EQ(runs[1].spec.seed, 7U);
  EXPECT_EQ(runs[8].spec.seed, 9U);
  EXPECT_EQ(runs[8].spec.data_seed, 9U);
  EXPECT_TRUE(runs[0].spec.watch);
}

TEST(Profile, RefusesWhatMakesNoSense) {
  const auto refused = [](const auto& work, const char* part) {
    try {
      work();
      ADD_FAILURE() << part;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(part));
    }
  };
  ProfileOptions o = options({"adamw", "lion:8bit"}, 2);
  refused([&] { find_contender(o.contenders, "lion"); },
          "baseline lion is not profiled, expected one of adamw, lion 8bit");
  EXPECT_EQ(find_contender(o.contenders, "lion:8bit"), 1U);
  o.base.steps = 2;
  refused([&] { plan_profile(o); }, "2 steps, expected at least 3");
  refused([] { plan_profile(options({"adamw"}, 0)); }, "0 repeats");
  refused([] { plan_profile(options({}, 1)); }, "0 optimizers");
}

TEST(Profile, FiguresAreMediansOfRuns) {
  const ProfileOptions o = options({"adamw", "lion"}, 3);
  const auto runs = runs_of(o, {{1, 1.25, 2}, {0.5, 0.5, 0.5}});
  const Table t = profile_summary(o, runs);
  ASSERT_EQ(t.rows.size(), 2U);
  EXPECT_DOUBLE_EQ(*number(t.rows[0], "tokens_per_s"), 800);
  EXPECT_LE(*number(t.rows[0], "low"), 800);
  EXPECT_GE(*number(t.rows[0], "high"), 800);
  EXPECT_DOUBLE_EQ(*number(t.rows[0], "total_s"), 7);
  EXPECT_DOUBLE_EQ(*number(t.rows[0], "warm_total_s"), 5);
  EXPECT_DOUBLE_EQ(*number(t.rows[0], "device_mb"), 16);
  EXPECT_DOUBLE_EQ(*number(t.rows[0], "state_mb"), 8);
  EXPECT_EQ(text(t.rows[0], "outcome"), "3 finished");
  EXPECT_EQ(t.rows[0].find("tokens_per_s_change_percent"), nullptr);  // it is the baseline
  EXPECT_DOUBLE_EQ(*number(t.rows[1], "tokens_per_s_change_percent"), 150);
  const auto rows = profile_run_rows(o, runs);
  ASSERT_EQ(rows.size(), 6U);
  EXPECT_EQ(*number(rows[5], "repeat"), 3);
  EXPECT_DOUBLE_EQ(*number(rows[0], "tokens_per_s"), 1000);
  EXPECT_EQ(rows[0].samples().at(0).second.size(), 4U);
}

TEST(Profile, ClaimsWhatIsBeyondTheNoise) {
  const ProfileOptions o = options({"adamw", "lion", "adamp"}, 3);
  const auto runs = runs_of(o, {{1, 1.01, 0.99}, {0.8, 0.805, 0.795}, {1.3, 1.29, 1.31}});
  const Table t = profile_summary(o, runs);
  EXPECT_EQ(text(t.rows[1], "verdict"), "faster");
  EXPECT_EQ(text(t.rows[2], "verdict"), "slower");
  EXPECT_GT(*number(t.rows[1], "tokens_per_s_change_low_percent"),
            *number(t.rows[1], "tokens_per_s_noise_percent"));
  const std::string said = read_all(o, runs);
  EXPECT_THAT(said, HasSubstr("highest throughput: lion, 1250 tokens/s, beyond the noise"));
  EXPECT_THAT(said, HasSubstr("faster than adamw: lion (+25.0 %)"));
  EXPECT_THAT(said, HasSubstr("slower than adamw: adamp (-23.1 %)"));
  EXPECT_THAT(said, HasSubstr("3 repeats are too few for a rank test"));
  EXPECT_THAT(said, Not(HasSubstr("not distinguishable")));
}

TEST(Profile, ClaimsNothingWhereRunsOverlap) {
  const ProfileOptions o = options({"adamw", "lion"}, 3);
  const auto runs = runs_of(o, {{1, 1.1, 0.9}, {0.95, 1.05, 0.85}});
  const Table t = profile_summary(o, runs);
  EXPECT_EQ(text(t.rows[1], "verdict"), "no difference seen");
  const std::string said = read_all(o, runs);
  EXPECT_THAT(said, HasSubstr("not distinguishable from adamw in tokens/s: lion"));
  EXPECT_THAT(said, Not(HasSubstr("faster than")));
}

// Apart from one another, but by no more than a third one's runs are.
TEST(Profile, NoiseIsThatOfAllOptimizers) {
  const ProfileOptions o = options({"adamw", "lion", "sgd"}, 3);
  const std::vector<std::vector<double>> close = {
      {1, 1.001, 0.999}, {0.9, 0.901, 0.899}, {1, 1, 1}};
  EXPECT_EQ(text(profile_summary(o, runs_of(o, close)).rows[1], "verdict"), "faster");
  std::vector<std::vector<double>> noisy = close;
  noisy[2] = {0.7, 1, 1.3};
  EXPECT_EQ(text(profile_summary(o, runs_of(o, noisy)).rows[1], "verdict"), "no difference seen");
}

TEST(Profile, OneRunEachTellsMemoryButNotTime) {
  const ProfileOptions o = options({"adamw", "lion:8bit"}, 1);
  auto runs = runs_of(o, {{1}, {0.5}});
  runs[1].result = made_up(0.5, 1);
  const Table t = profile_summary(o, runs);
  EXPECT_EQ(text(t.rows[1], "verdict"), "too few repeats");
  EXPECT_EQ(t.rows[0].find("low"), nullptr);
  const std::string said = read_all(o, runs);
  EXPECT_THAT(said, HasSubstr("one run of each says nothing of noise"));
  EXPECT_THAT(said,
              HasSubstr("least memory on the device: lion 8bit, 9 MB, 43.8 % less than adamw"));
  EXPECT_THAT(said, Not(HasSubstr("throughput")));
}

TEST(Profile, FailedRunsAreOutcomes) {
  const ProfileOptions o = options({"adamw", "lion", "adamp"}, 2);
  auto runs = runs_of(o, {{1, 1}, {1, 1}, {1, 1}});
  for (ProfileRun& r : runs) {
    if (r.contender == 1 || (r.contender == 2 && r.repeat == 1)) {
      r.result = TrialResult();
      r.result.end = TrialEnd::oom;
      r.result.message = "more than there is";
    }
  }
  const Table t = profile_summary(o, runs);
  EXPECT_EQ(text(t.rows[1], "outcome"), "2 oom");
  EXPECT_EQ(t.rows[1].find("tokens_per_s"), nullptr);
  EXPECT_EQ(text(t.rows[2], "outcome"), "1 finished, 1 oom");
  EXPECT_EQ(text(t.rows[2], "verdict"), "too few repeats");
  EXPECT_THAT(read_profile(o, runs), Contains("lion: oom: more than there is"));
  EXPECT_EQ(profile_tables(o, runs).size(), 3U);
  for (ProfileRun& r : runs) {
    if (r.contender == 0) r.result = TrialResult();
  }
  EXPECT_EQ(text(profile_tables(o, runs)[2].rows[0], "verdict"), "2 oom");
  EXPECT_EQ(text(profile_tables(o, runs)[2].rows[1], "verdict"), "no baseline");
  for (ProfileRun& r : runs) r.result = TrialResult();
  EXPECT_EQ(profile_tables(o, runs).size(), 3U);
  EXPECT_EQ(text(profile_summary(o, runs).rows[0], "outcome"), "2 failed");
}

TEST(Profile, ARelativeTableHasIntervalsAndMarksClaims) {
  const ProfileOptions o = options({"adamw", "lion"}, 3);
  const auto tables = profile_tables(o, runs_of(o, {{1, 1, 1}, {0.5, 0.5, 0.5}}));
  const Table& relative = tables.back();
  ASSERT_EQ(relative.rows.size(), 1U);
  EXPECT_EQ(text(relative.rows[0], "tokens_per_s"), "+100.0 [+100, +100]*");
  EXPECT_EQ(text(relative.rows[0], "device_mb"), "+0.0");
  EXPECT_EQ(text(relative.rows[0], "host_mb"), "+0.0 [+0.0, +0.0]");
}

TEST(ProfileFigures, NoiseShrinksWithRuns) {
  const std::vector<std::vector<double>> values = {{1, 1.1, 0.9}, {2, 2.2, 1.8}, {7}};
  const Spread s = spread_of(values);
  EXPECT_EQ(s.freedom, 4U);
  EXPECT_NEAR(s.deviation, 0.1, 0.002);
  EXPECT_LT(noise_band(s, 12, 12), noise_band(s, 3, 3) / 1.9);
  EXPECT_EQ(noise_band(spread_of(std::vector<std::vector<double>>{{1}}), 1, 1), INFINITY);
}

// Eight that are all alike, again and again: claims against the first are rare.
TEST(ProfileFigures, AlikeOptimizersAreSeldomCalledDifferent) {
  std::mt19937_64 engine(1);
  std::normal_distribution<double> noise(0, 0.03);
  for (const size_t n : {3, 5}) {
    int wrong = 0;
    constexpr int kProfiles = 40;
    for (int profile = 0; profile < kProfiles; ++profile) {
      std::vector<std::vector<double>> values(8, std::vector<double>(n));
      for (auto& runs : values) {
        for (double& x : runs) x = std::exp(noise(engine));
      }
      const Spread spread = spread_of(values);
      bool any = false;
      for (size_t i = 1; i < values.size(); ++i) {
        const auto c = change_of(values[0], values[i], spread, false);
        any = any || c->claim != Claim::not_seen;
      }
      wrong += any;
    }
    EXPECT_LE(wrong, 2) << n;
  }
}

TEST(ProfileFigures, SaysHowManyRepeatsWouldTell) {
  Change c;
  c.ratio = 1.02;
  c.band = 0.04;
  const int64_t enough = repeats_to_tell(c, 3);
  EXPECT_GE(enough, 40);
  EXPECT_LE(enough, 60);
  c.ratio = 1.5;
  EXPECT_EQ(repeats_to_tell(c, 3), 4);
}

}  // namespace
}  // namespace gallop::lab
