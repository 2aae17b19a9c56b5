// SPDX-License-Identifier: MIT
#include "lab/race.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <thread>

#include "folder.h"
#include "gallop/error.h"
#include "gallop/rules.h"
#include "lab/figures.h"
#include "lab/race_folder.h"
#include "lab/race_run.h"
#include "lab/race_table.h"

namespace gallop::lab {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

double lr_of(const TrialSpec& s) {
  for (const auto& [name, value] : s.hyper) {
    if (name == "lr") return value;
  }
  return 0;
}

Racer racer(const std::string& optimizer, std::vector<double> rates) {
  Racer r;
  r.name = r.optimizer = optimizer;
  for (const double lr : rates) r.candidates.push_back({{"lr", lr}});
  return r;
}

RaceOptions options() {
  RaceOptions o;
  o.seeds = 3;
  o.racers = {racer("adamw", {1e-3, 1e-2, 1e-1}), racer("lion", {1e-4, 1e-3, 1e-2})};
  o.workloads = {{"nano", "nano", "synthetic"}};
  o.base.steps = 100;
  return o;
}

TrialResult ended(double validation, double train_s = 10) {
  TrialResult r;
  r.end = std::isfinite(validation) ? TrialEnd::finished : TrialEnd::diverged;
  r.points = {{100, train_s, validation, validation}};
  r.steps = 100;
  r.train_s = train_s;
  r.tokens_per_s = 1000;
  return r;
}

// Runs what it is given by a formula, and remembers it.
struct Fake {
  std::function<TrialResult(const Entry&)> formula;
  std::vector<Entry> ran;
  RunEntries run() {
    return [this](const std::vector<Entry>& entries, std::map<std::string, TrialResult>& done) {
      for (const Entry& e : entries) {
        ran.push_back(e);
        done[trial_hash(e.spec)] = formula(e);
      }
      return true;
    };
  }
};

TEST(Race, TheBestCandidateRunsAgainWithSeedsThatTuningHasNotSeen) {
  RaceOptions o = options();
  o.tune_seeds = 2;
  Fake fake;
  fake.formula = [](const Entry& e) {
    const double best = e.racer == 0 ? 1e-2 : 1e-3;
    return ended(2 + std::fabs(std::log10(lr_of(e.spec) / best)) + 0.001 * double(e.spec.seed));
  };
  const RaceResult r = run_race(o, fake.run());
  EXPECT_TRUE(r.whole);
  ASSERT_EQ(r.standings.size(), 2U);
  EXPECT_EQ(r.standings[0].best, 1U);
  EXPECT_EQ(r.standings[1].best, 1U);
  EXPECT_EQ(fake.ran.size(), 2U * 3 * 2 + 2U * 3);
  std::set<uint64_t> tuned, final, order_of_data;
  for (const Entry& e : fake.ran) {
    (e.stage == Entry::Stage::tune ? tuned : final).insert(e.spec.seed);
    order_of_data.insert(e.spec.data_seed);
    EXPECT_NE(e.spec.seed, e.spec.data_seed);
  }
  EXPECT_THAT(tuned, ElementsAre(1, 2));
  EXPECT_THAT(final, ElementsAre(3, 4, 5));
  EXPECT_EQ(order_of_data.size(), 5U);
  EXPECT_EQ(r.standings[0].tuning_s, 3 * 2 * 10);
  for (const Finished& f : r.standings[0].finals) EXPECT_EQ(lr_of(f.entry.spec), 1e-2);
}

TEST(Race, SaysWhenTheBestIsAtAnEndOfWhatWasTried) {
  RaceOptions o = options();
  o.first_seed = 100;
  Fake fake;
  fake.formula = [](const Entry& e) {
    EXPECT_GE(e.spec.seed, 100U);
    return ended(e.racer == 0 ? 3 - lr_of(e.spec) : std::fabs(lr_of(e.spec) - 1e-3));
  };
  const Table t = leaderboard(o, run_race(o, fake.run()));
  EXPECT_THAT(t.notes,
              testing::Contains(testing::AllOf(HasSubstr("beyond it"), HasSubstr("adamw lr=0.1"),
                                               testing::Not(HasSubstr("lion")))));
}

TEST(Race, TheReadingSaysWhoIsFirstAndWhoCannotBeToldApart) {
  RaceOptions o = options();
  o.racers = {racer("adamw", {1e-3}), racer("lion", {1e-3}), racer("sgd", {1e-3})};
  o.seeds = 4;
  const auto reading = [&](double lion, double sgd) {
    Fake fake;
    fake.formula = [&](const Entry& e) {
      const double by[] = {2.0, lion, sgd};
      return ended(by[e.racer] + 0.01 * static_cast<double>(e.seed % 4));
    };
    return leaderboard(o, run_race(o, fake.run())).notes.at(0);
  };
  EXPECT_EQ(reading(1.0, 3.0), "first is lion (1.015), and all others are behind it");
  EXPECT_EQ(reading(2.005, 3.0),
            "first is adamw (2.015); not told apart from it: lion; behind it: sgd");
  EXPECT_EQ(reading(2.005, 2.006), "first is adamw (2.015); not told apart from it: lion, sgd");
  EXPECT_EQ(reading(kInf, kInf), "first is adamw (2.015), and all others are behind it");
  o.seeds = 2;
  EXPECT_THAT(reading(1.0, 3.0), HasSubstr("too few seeds to tell it from chance"));
  o.goal = Goal::target;
  o.target = 1;
  EXPECT_EQ(read_race(o, {}).at(0), "none has a median that reached the target");
}

TEST(Race, MediansDecideNotTheLuckiestSeed) {
  RaceOptions o = options();
  o.racers = {racer("adamw", {1e-3, 1e-2})};
  o.tune_seeds = 3;
  Fake fake;
  fake.formula = [](const Entry& e) {
    if (lr_of(e.spec) == 1e-3) return ended(2.0);
    return ended(e.spec.seed == 1 ? 1.0 : 3.0);
  };
  EXPECT_EQ(run_race(o, fake.run()).standings[0].best, 0U);
}

TEST(Race, DivergedCandidatesLoseAndRacersWithoutAnyAreNotDropped) {
  RaceOptions o = options();
  Fake fake;
  fake.formula = [](const Entry& e) {
    return ended(e.racer == 1 || lr_of(e.spec) > 5e-3 ? kInf : 2.0);
  };
  const RaceResult r = run_race(o, fake.run());
  EXPECT_EQ(r.standings[0].best, 0U);
  EXPECT_FALSE(r.standings[1].best.has_value() && !r.standings[1].finals.empty());
  const Table t = leaderboard(o, r);
  ASSERT_EQ(t.rows.size(), 2U);
  EXPECT_EQ(text(t.rows[0], "optimizer"), "adamw");
  EXPECT_EQ(text(t.rows[1], "optimizer"), "lion");
  EXPECT_EQ(*number(t.rows[1], "win_probability"), 0);
  EXPECT_THAT(t.notes, testing::Contains(HasSubstr("lion: nothing worked; diverged")));
}

TEST(Race, MemoryIsToldByClassWhereItIsKnown) {
  RaceOptions o = options();
  Fake fake;
  fake.formula = [](const Entry& e) {
    TrialResult r = ended(e.racer == 0 ? 2.0 : 3.0);
    if (e.racer == 0) r.class_mb = {{"parameters", 4}, {"state", 8}};
    return r;
  };
  const Table t = leaderboard(o, run_race(o, fake.run()));
  EXPECT_EQ(number(t.rows.at(0), "state_mb"), 8);
  EXPECT_FALSE(number(t.rows.at(1), "state_mb"));  // a trial from before that was kept
}

TEST(Race, AccuraciesAreThoseOfTheEnd) {
  RaceOptions o = options();
  o.base.min_length = 3;
  Fake fake;
  fake.formula = [](const Entry& e) {
    TrialResult r = ended(2.0);
    if (e.racer == 1) return r;  // not known
    if (e.spec.seed == 4) return ended(kInf);
    r.points[0].accuracy = 0.125 * double(e.spec.seed);
    r.points.insert(r.points.begin(), {50, 5, 3, 3, 0.0625});
    return r;
  };
  const RaceResult r = run_race(o, fake.run());
  const Table t = leaderboard(o, r);
  EXPECT_EQ(*number(t.rows[0], "accuracy"), 0.25);  // of seeds 2, 3 and 4, which is a miss
  EXPECT_FALSE(number(t.rows[1], "accuracy"));
  EXPECT_THAT(t.columns, testing::Contains("accuracy"));
  const std::vector<Row> trials = trial_rows(o, r);
  const auto final = std::ranges::find_if(trials, [](const Row& row) {
    return text(row, "stage") == "final" && text(row, "seed") == "3";
  });
  ASSERT_NE(final, trials.end());
  EXPECT_EQ(*number(*final, "accuracy"), 0.375);
  EXPECT_EQ(*number(*final, "min_length"), 3);
  EXPECT_EQ(*number(t.rows[0], "min_length"), 3);
  EXPECT_THAT(final->samples(),
              testing::Contains(testing::Pair("curve_accuracy", ElementsAre(0.0625, 0.375))));
}

TEST(Race, AMissedTargetIsInfiniteAndTheNearestCandidateStillRuns) {
  RaceOptions o = options();
  o.goal = Goal::target;
  o.target = 1.0;
  Fake fake;
  fake.formula = [](const Entry& e) {
    EXPECT_EQ(e.spec.target, 1.0);
    TrialResult r = ended(e.racer == 0 ? 1.0 : 2 + lr_of(e.spec), 5 + double(e.spec.seed));
    r.end = e.racer == 0 ? TrialEnd::reached : TrialEnd::missed;
    return r;
  };
  const RaceResult r = run_race(o, fake.run());
  EXPECT_EQ(r.standings[1].best, 0U);
  const Table t = leaderboard(o, r);
  EXPECT_EQ(*number(t.rows[0], "time_to_target_s"), 8);  // seeds 2, 3 and 4
  EXPECT_EQ(*number(t.rows[1], "time_to_target_s"), kInf);
  EXPECT_EQ(text(t.rows[1], "outcome"), "3 missed");
  EXPECT_EQ(*number(t.rows[0], "win_probability"), 1);
  EXPECT_EQ(number(t.rows[1], "ratio"), kInf);
  // To one that misses there is none.
  std::swap(o.racers[0], o.racers[1]);
  fake.formula = [](const Entry& e) {
    TrialResult missed = ended(2);
    missed.end = e.racer == 1 ? TrialEnd::reached : TrialEnd::missed;
    return missed;
  };
  const Table other = leaderboard(o, run_race(o, fake.run()));
  EXPECT_EQ(text(other.rows[0], "optimizer"), "adamw");
  EXPECT_FALSE(number(other.rows[0], "ratio"));
}

TEST(Race, ABudgetGivesEachAsManyStepsAsItHasTimeFor) {
  RaceOptions o = options();
  o.goal = Goal::budget;
  o.budget_s = 60;
  o.base.batch = 8;
  o.base.context = 16;
  Fake fake;
  fake.formula = [](const Entry& e) {
    TrialResult r = ended(2);
    r.tokens_per_s = e.racer == 0 ? 128 * 10 : 128 * 20;  // steps a second: 10 and 20
    return r;
  };
  run_race(o, fake.run());
  for (const Entry& e : fake.ran) {
    if (e.stage == Entry::Stage::pace) continue;
    EXPECT_EQ(e.spec.steps, e.racer == 0 ? 600 : 1200);
  }
}

TEST(Race, SpikesAreShownWhereThereAreSome) {
  const RaceOptions o = options();
  Fake fake;
  bool some = false;
  fake.formula = [&](const Entry& e) {
    TrialResult r = ended(2);
    if (some && e.racer == 1) r.spikes = 2, r.worst_spike = double(e.spec.seed);
    return r;
  };
  const Table calm = leaderboard(o, run_race(o, fake.run()));
  EXPECT_THAT(calm.columns, testing::Not(testing::Contains("spikes")));
  EXPECT_EQ(*number(calm.rows[0], "spikes"), 0);
  some = true;
  const RaceResult r = run_race(o, fake.run());
  const Table t = leaderboard(o, r);
  EXPECT_THAT(t.columns, testing::IsSupersetOf({"spikes", "worst_spike", "outcome"}));
  EXPECT_EQ(text(t.rows[1], "optimizer"), "lion");
  EXPECT_EQ(*number(t.rows[1], "spikes"), 6);
  EXPECT_EQ(*number(t.rows[1], "worst_spike"), 4);
  EXPECT_THAT(t.notes, testing::Contains(HasSubstr("sudden rises")));
  const Table tried = tuning(o, r);
  ASSERT_EQ(tried.rows.size(), 6U);
  EXPECT_EQ(text(tried.rows[3], "tried"), "lr=1e-4");
  EXPECT_EQ(*number(tried.rows[3], "spikes"), 2);
}

TEST(Race, WhatIsTheSameForARacerIsRunOnce) {
  RaceOptions o = options();
  o.racers = {racer("adamw", {1e-3})};
  o.racers[0].candidates = {{{"lr", 1e-3}, {"decay_rate", -1}}, {{"lr", 1e-3}, {"decay_rate", 0}}};
  Fake fake;
  fake.formula = [](const Entry&) { return ended(2); };
  EXPECT_EQ(run_race(o, fake.run()).standings[0].tuned.size(), 2U);
  EXPECT_EQ(fake.ran.size(), 1U + 3);
}

TEST(Race, WithOneCandidateNothingIsTuned) {
  RaceOptions o = options();
  o.racers = {racer("adamw", {1e-3}), racer("lion", {1e-4})};
  Fake fake;
  fake.formula = [](const Entry&) { return ended(2); };
  const RaceResult r = run_race(o, fake.run());
  EXPECT_EQ(fake.ran.size(), 6U);
  EXPECT_THAT(leaderboard(o, r).notes, testing::Contains(HasSubstr("nothing was tuned")));
}

TEST(Race, TuningMustBeFairAndQuestionsMakeSense) {
  const auto refused = [](auto change) {
    RaceOptions o = options();
    change(o);
    Fake fake;
    try {
      run_race(o, fake.run());
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused([](RaceOptions& o) { o.racers[1].candidates.pop_back(); }),
              HasSubstr("lion has 2 trials and adamw 3"));
  EXPECT_THAT(refused([](RaceOptions& o) { o.racers.clear(); }), HasSubstr("0 optimizers"));
  EXPECT_THAT(refused([](RaceOptions& o) { o.workloads.clear(); }), HasSubstr("0 workloads"));
  EXPECT_THAT(refused([](RaceOptions& o) { o.seeds = 0; }), HasSubstr("0 seeds"));
  EXPECT_THAT(refused([](RaceOptions& o) { o.racers[0].optimizer = "adamx"; }), HasSubstr("adamx"));
}

TEST(Race, ProfilesAreOverWorkloads) {
  RaceOptions o = options();
  o.goal = Goal::target;
  o.workloads.push_back({"char", "char", "synthetic"});
  o.racers = {racer("adamw", {1e-3}), racer("lion", {1e-4})};
  Fake fake;
  // adamw is the fastest on the first, and 1.25 times as slow on the second.
  fake.formula = [](const Entry& e) {
    TrialResult r = ended(1, e.workload == 0 ? (e.racer == 0 ? 10 : 30) : (e.racer == 0 ? 10 : 8));
    r.end = TrialEnd::reached;
    return r;
  };
  const Table t = profiles(o, run_race(o, fake.run()));
  ASSERT_EQ(t.rows.size(), 2U);
  EXPECT_EQ(*number(t.rows[0], "within_1x"), 0.5);
  EXPECT_EQ(*number(t.rows[0], "within_1.5x"), 1);
  EXPECT_EQ(*number(t.rows[1], "within_2x"), 0.5);
  EXPECT_EQ(*number(t.rows[1], "within_4x"), 1);
}

TEST(Race, EveryRuleHasAUsualRange) {
  for (const std::string& name : rule_names()) {
    const SearchRange r = usual_range(name);
    EXPECT_EQ(r.name, "lr");
    EXPECT_GT(r.low, 0);
    EXPECT_GT(r.high, r.low);
  }
}

class RaceFolderTest : public testing::Test {
 protected:
  const test::Folder own_;
  const std::string folder_ = own_ / "trials";

  static RaceOptions small() {
    RaceOptions o;
    o.racers = {racer("adamw", {1e-3, 1e-2}), racer("lion", {1e-4, 1e-3})};
    o.workloads = {{"small", "nano:layers=1:width=32:heads=2:context=16:vocabulary=64",
                    "synthetic:vocabulary=64,branching=2"}};
    o.base.steps = 20;
    o.base.batch = 4;
    o.base.eval_batches = 2;
    o.seeds = 2;
    return o;
  }
  static RaceRunOptions here() {
    RaceRunOptions h;
    h.pool.program = {GALLOP_PROGRAM, "trial"};
    h.pool.jobs = 2;
    return h;
  }
};

TEST_F(RaceFolderTest, KeepsResultsByWhatTheTrialIs) {
  const RaceFolder folder(folder_);
  TrialSpec spec;
  EXPECT_FALSE(folder.find(spec));
  folder.keep(spec, ended(2.5));
  ASSERT_TRUE(folder.find(spec));
  EXPECT_EQ(folder.find(spec)->final_validation(), 2.5);
  spec.seed = 9;
  EXPECT_FALSE(folder.find(spec));
  std::ofstream(fs::path(folder_) / (trial_hash(spec) + ".json")) << "{\"half\": ";
  EXPECT_FALSE(folder.find(spec));  // damaged: as if it were not there
  EXPECT_THROW(RaceFolder("/proc/none/race"), Error);
}

TEST_F(RaceFolderTest, ARaceThatWasStoppedGoesOnAndRepeatsNothing) {
  const RaceOptions o = small();
  const RaceFolder folder(folder_);
  RaceRunOptions first = here();
  const auto kept = [&] {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  };
  first.stop = [&] { return kept() >= 3; };
  EXPECT_FALSE(run_race(o, run_here(o, folder, first)).whole);
  const auto before = kept();
  EXPECT_GE(before, 3);
  EXPECT_LT(before, 8);
  std::map<std::string, fs::file_time_type> times;
  for (const auto& f : fs::directory_iterator(folder_)) times[f.path()] = f.last_write_time();

  const RaceResult whole = run_race(o, run_here(o, folder, here()));
  EXPECT_TRUE(whole.whole);
  EXPECT_EQ(kept(), 2 * 2 + 2 * 2);
  for (const auto& [path, time] : times) EXPECT_EQ(fs::last_write_time(path), time);
  RaceRunOptions none = here();
  none.pool.program = {"/no/such/program"};
  const RaceResult again = run_race(o, run_here(o, folder, none));
  EXPECT_TRUE(again.whole);
  EXPECT_EQ(again.standings[0].finals[0].result.final_validation(),
            whole.standings[0].finals[0].result.final_validation());
  EXPECT_EQ(trial_rows(o, again).size(), 8U);
}

TEST_F(RaceFolderTest, ThoseWhoShareItRunEachTrialOnce) {
  const RaceOptions o = small();
  const RaceFolder folder(folder_);
  const std::string log = own_ / "log";
  const auto take_part = [&](std::vector<double>& losses) {
    RaceClaims claims(folder_);
    RaceRunOptions h = here();
    h.claims = &claims;
    h.look_s = 0.05;
    h.pool.jobs = 1;
    h.pool.program = {"/bin/sh", "-c", "echo ran >> " + log + "; exec " GALLOP_PROGRAM " trial"};
    for (const Standing& s : run_race(o, run_here(o, folder, h)).standings) {
      for (const Finished& f : s.finals) losses.push_back(f.result.final_validation());
    }
  };
  std::vector<double> mine, theirs;
  std::thread other([&] { take_part(theirs); });
  take_part(mine);
  other.join();
  EXPECT_EQ(mine.size(), 4U);
  EXPECT_EQ(mine, theirs);
  std::ifstream in(log);
  const std::string ran((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(std::count(ran.begin(), ran.end(), '\n'), 2 * 2 + 2 * 2);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 8);
}

TEST_F(RaceFolderTest, WhatTimedOutIsRunAgainWithMoreTime) {
  RaceOptions o = small();
  o.racers = {racer("adamw", {1e-3})};
  o.seeds = 1;
  const RaceFolder folder(folder_);
  RaceRunOptions h = here();
  const auto end_with = [&](double timeout_s) {
    h.pool.timeout_s = timeout_s;
    return run_race(o, run_here(o, folder, h)).standings[0].finals.at(0).result.end;
  };
  h.pool.program = {"/bin/sh", "-c", "exec sleep 100"};
  EXPECT_EQ(end_with(0.2), TrialEnd::timed_out);
  h.pool.program = {GALLOP_PROGRAM, "trial"};
  EXPECT_EQ(end_with(0.2), TrialEnd::timed_out);
  EXPECT_EQ(end_with(100), TrialEnd::finished);
}

TEST_F(RaceFolderTest, WhatIsLostIsTriedOnceMoreAndNotKept) {
  RaceOptions o = small();
  o.racers = {racer("adamw", {1e-3})};
  o.seeds = 1;
  const RaceFolder folder(folder_);
  RaceRunOptions h = here();
  const std::string mark = folder_ + "/mark";
  h.pool.program = {"/bin/sh", "-c",
                    "if [ -e " + mark + " ]; then exec " GALLOP_PROGRAM " trial; fi; touch " +
                        mark + "; kill -9 $$"};
  const RaceResult r = run_race(o, run_here(o, folder, h));
  EXPECT_EQ(r.standings[0].finals.at(0).result.end, TrialEnd::finished);
  fs::remove_all(folder_);
  const RaceFolder fresh(folder_);
  h.pool.program = {"/bin/sh", "-c", "kill -9 $$"};
  const RaceResult lost = run_race(o, run_here(o, fresh, h));
  EXPECT_EQ(lost.standings[0].finals.at(0).result.end, TrialEnd::lost);
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace gallop::lab
