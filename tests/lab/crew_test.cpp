// SPDX-License-Identifier: MIT
#include "lab/crew.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>

#include "gallop/error.h"
#include "lab/cpus.h"
#include "lab/host.h"

namespace gallop::lab {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The leader's view of ranks that a test plays.
class PlayedRanks : public Ranks {
 public:
  explicit PlayedRanks(int size) : size_(size) {}

  int rank() const override { return 0; }
  int size() const override { return size_; }
  bool send(int to, const std::string& text) override {
    Json json = Json::parse(text);
    if (json.contains("end")) say(to, {{"bye", true}});
    told.emplace_back(to, std::move(json));
    return to != gone;
  }
  std::optional<RankMessage> receive() override {
    if (said_.empty()) return {};
    RankMessage message = std::move(said_.front());
    said_.pop_front();
    return message;
  }
  void finish(bool all) override { all_were_there = all; }

  void say(int from, const Json& what) { said_.push_back({from, dump(what)}); }
  void greet(int from, const std::string& host, const std::vector<int>& cpus,
             const std::string& kind = "same") {
    say(from, {{"hello", {{"host", host}, {"kind", kind}, {"cpus", cpus}}}});
  }

  std::vector<std::pair<int, Json>> told;
  std::optional<bool> all_were_there;
  int gone = -1;

 private:
  int size_;
  std::deque<RankMessage> said_;
};

CrewOptions patient(double seconds = 30) { return {"same", seconds}; }

TEST(Crew, RanksOfAMachineDivideTheCpusTheyAreGivenAlike) {
  PlayedRanks ranks(5);
  ranks.greet(1, "far", {0, 1, 2, 3});
  ranks.greet(2, "far", {0, 1, 2, 3});
  ranks.greet(3, "bound", {0, 1});
  ranks.greet(4, "bound", {2, 3});
  const Crew crew(ranks, patient());
  std::vector<Json> places;
  for (const auto& [to, json] : ranks.told) places.push_back(json.at("place"));
  ASSERT_EQ(places.size(), 4U);
  EXPECT_EQ(places[0], (Json{{"local", 0}, {"ranks", 2}, {"cpus", {0, 1}}}));
  EXPECT_EQ(places[1], (Json{{"local", 1}, {"ranks", 2}, {"cpus", {2, 3}}}));
  EXPECT_EQ(places[2], (Json{{"local", 0}, {"ranks", 2}, {"cpus", {0, 1}}}));
  EXPECT_EQ(places[3], (Json{{"local", 1}, {"ranks", 2}, {"cpus", {2, 3}}}));
  EXPECT_EQ(crew.place().cpus, usable_cpus());
}

TEST(Crew, TrialsOfARankThatIsSilentAreToBeRunAgain) {
  PlayedRanks ranks(3);
  ranks.greet(1, "a", {0});
  ranks.greet(2, "b", {0});
  {
    Crew crew(ranks, patient(0.1));
    ranks.say(1, {{"slots", 1}});
    ranks.say(2, {{"slots", 2}});
    std::vector<size_t> ended;
    TrialEvents events;
    events.end = [&](size_t trial, const TrialResult&) { ended.push_back(trial); };
    EXPECT_TRUE(crew.full());
    EXPECT_THAT(crew.poll(events), ElementsAre());
    for (const size_t trial : {7, 8, 9}) {
      EXPECT_FALSE(crew.full());
      crew.start(trial, TrialSpec());
    }
    EXPECT_TRUE(crew.full());
    const int64_t id = ranks.told.back().second.at("id").get<int64_t>();
    const int last = ranks.told.back().first, other = 3 - last;
    usleep(200000);
    ranks.say(last, {{"id", id}, {"result", to_json(TrialResult())}});
    EXPECT_EQ(crew.poll(events).size(), other == 1 ? 1U : 2U);
    EXPECT_THAT(ended, ElementsAre(9));
    EXPECT_EQ(crew.lost(), 1);
    // What it says later does not count.
    ranks.say(other, {{"id", 1}, {"result", to_json(TrialResult())}});
    crew.poll(events);
    EXPECT_THAT(ended, ElementsAre(9));
  }
  EXPECT_EQ(ranks.all_were_there, false);
}

TEST(Crew, SoAreThoseOfOneThatCannotBeReachedOrLeaves) {
  PlayedRanks ranks(3);
  ranks.greet(1, "a", {0});
  ranks.greet(2, "b", {0});
  Crew crew(ranks, patient());
  ranks.say(1, {{"slots", 1}});
  ranks.say(2, {{"slots", 1}});
  crew.poll({});
  ranks.gone = 1;
  crew.start(4, TrialSpec());
  crew.start(5, TrialSpec());
  ranks.say(2, {{"bye", true}});
  EXPECT_EQ(crew.poll({}).size(), 2U);
  EXPECT_EQ(crew.lost(), 2);
  EXPECT_TRUE(crew.idle());
  EXPECT_TRUE(crew.full());
}

TEST(Crew, AllLeaveTogetherWhereNoneIsLost) {
  PlayedRanks ranks(2);
  ranks.greet(1, "a", {0});
  { const Crew crew(ranks, patient()); }
  EXPECT_EQ(ranks.all_were_there, true);
  EXPECT_EQ(ranks.told.back().second, (Json{{"leave", true}}));
}

TEST(Crew, AnotherKindOfMachineOrSilenceIsRefused) {
  const auto refused = [](PlayedRanks& ranks, double patience_s) {
    try {
      const Crew crew(ranks, patient(patience_s));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  PlayedRanks other(2), silent(2);
  other.greet(1, "far", {0}, "other");
  EXPECT_THAT(refused(other, 30), HasSubstr("rank 1 on far is of another build or kind"));
  EXPECT_THAT(refused(silent, 0.05), HasSubstr("1 of 2 ranks said nothing"));
}

}  // namespace
}  // namespace gallop::lab
