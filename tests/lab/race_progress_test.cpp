// SPDX-License-Identifier: MIT
#include "lab/race_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gallop::lab {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class RaceProgressTest : public testing::Test {
 protected:
  RaceProgressTest() {
    for (const char* name : {"adamw", "lion"}) {
      Racer racer;
      racer.name = racer.optimizer = name;
      racer.candidates = {{{"lr", 1e-3}}};
      race_.racers.push_back(racer);
    }
    race_.workloads = {{"nano", "nano", "synthetic"}};
    for (size_t i = 0; i < 20; ++i) {
      Entry e;
      e.stage = Entry::Stage::final;
      e.racer = i % 2;
      e.seed = 1 + i / 2;
      e.spec.steps = 100;
      entries_.push_back(e);
    }
  }

  static TrialResult ended_with(double loss) {
    TrialResult r;
    r.end = TrialEnd::finished;
    r.points = {{100, 1, loss, loss, 0.5}};
    return r;
  }

  RaceOptions race_;
  std::vector<Entry> entries_;
};

TEST_F(RaceProgressTest, LeadersAreRankedByMediansOverSeeds) {
  RaceProgress progress(race_, entries_);
  progress.known(entries_[0], ended_with(1.5));  // adamw's best is lower than any of lion's
  progress.end(entries_[1], ended_with(2), false);
  for (const double loss : {3.0, 3.1}) progress.end(entries_[2], ended_with(loss), false);
  EXPECT_THAT(progress.lines(24), ElementsAre(HasSubstr("4 of 20 trials"), "  1. 2  lion lr=1e-3",
                                              "  2. 3  adamw lr=1e-3, median of 3 seeds"));
}

TEST_F(RaceProgressTest, AMissIsNoPlace) {
  RaceProgress progress(race_, entries_);
  TrialResult diverged;
  diverged.end = TrialEnd::diverged;
  progress.end(entries_[0], diverged, false);
  EXPECT_THAT(progress.lines(24), ElementsAre(HasSubstr("1 of 20 trials")));
}

TEST_F(RaceProgressTest, WhatIsRunAgainHasNotEnded) {
  RaceProgress progress(race_, entries_);
  progress.begin(entries_[0]);
  progress.end(entries_[0], {}, true);
  EXPECT_THAT(progress.lines(24), ElementsAre(HasSubstr("0 of 20 trials")));
}

TEST_F(RaceProgressTest, EachTrialUnderWayHasALineAsFarAsThereIsRoom) {
  RaceProgress progress(race_, entries_);
  for (const Entry& e : entries_) progress.begin(e);
  progress.point(entries_[0], {50, 1, 2, 2.5, 0.5});
  EXPECT_EQ(progress.lines(24).size(), 21U);
  EXPECT_THAT(progress.lines(24)[1], HasSubstr("step 50 of 100  loss 2.0000, validation 2.5000"));
  EXPECT_EQ(progress.lines(21).size(), 21U);
  progress.end(entries_[19], ended_with(2), false);
  progress.end(entries_[18], ended_with(3), false);
  for (const size_t most : {4U, 5U, 10U, 20U}) {
    const std::vector<std::string> lines = progress.lines(most);
    EXPECT_LE(lines.size(), most);
    EXPECT_THAT(lines, testing::Contains(StartsWith("  1. 2  lion")));
    EXPECT_THAT(lines, testing::Contains(testing::MatchesRegex("  and [0-9]+ more"))) << most;
  }
  EXPECT_THAT(progress.lines(10), testing::Contains("  and 12 more"));
}

}  // namespace
}  // namespace gallop::lab
