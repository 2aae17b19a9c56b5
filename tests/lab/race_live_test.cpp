// SPDX-License-Identifier: MIT
#include "lab/race_live.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "folder.h"

namespace gallop::lab {
namespace {

namespace fs = std::filesystem;

class RaceLiveTest : public testing::Test {
 protected:
  RaceLiveTest() {
    Racer lion;
    lion.name = lion.optimizer = "lion";
    lion.candidates = {{{"lr", 1e-3}}};
    race_.racers = {lion};
    race_.workloads = {{"nano", "nano", "synthetic"}};
    race_.folder = folder_.path();
    entries_.resize(2);
    entries_[1].seed = 2;
  }

  const test::Folder folder_;
  RaceOptions race_;
  std::vector<Entry> entries_;
};

TEST_F(RaceLiveTest, OthersSeeWhatIsUnderWayUntilItIsOver) {
  EXPECT_TRUE(running_race(folder_.path()).is_null());
  {
    RaceLive live(race_);
    live.begin(entries_[0]);
    live.begin(entries_[1]);
    live.point(entries_[0], {5, 0.1, 3, 2.9, 0.5});
    live.point(entries_[0], {10, 0.2, 2, 1.9, 0.6});
    live.tell("half-way");
    const Json seen = running_race(folder_.path());
    EXPECT_EQ(seen.at("progress"), "half-way");
    EXPECT_TRUE(seen.at("running").get<bool>());
    const Json& rows = seen.at("parts").at(0).at("rows");
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0].back(), "running");
    EXPECT_EQ(seen.at("parts").at(1).at("curves")[0].at("x"), Json({5, 10}));
  }
  EXPECT_TRUE(running_race(folder_.path()).is_null());
}

TEST_F(RaceLiveTest, ARaceThatWasKilledOrAFileThatIsDamagedIsNone) {
  const std::string file = folder_ / "live.json";
  std::ofstream(file) << R"({"title": "x", "parts": []})";
  EXPECT_FALSE(running_race(folder_.path()).is_null());
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::minutes(1));
  EXPECT_TRUE(running_race(folder_.path()).is_null());
  std::ofstream(file) << "{\"title\"";
  EXPECT_TRUE(running_race(folder_.path()).is_null());
}

TEST_F(RaceLiveTest, WithoutAFolderNothingIsWritten) {
  race_.folder.clear();
  RaceLive live(race_);
  live.begin(entries_[0]);
  live.tell("now");
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

}  // namespace
}  // namespace gallop::lab
