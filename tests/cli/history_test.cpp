// SPDX-License-Identifier: MIT
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "folder.h"
#include "lab/database.h"

namespace gallop::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class HistoryTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!lab::Database::available()) GTEST_SKIP() << "SKIPPED: this build has no SQLite";
  }

  Ran bench(std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"bench", "precision",     "--format", "json",
                                      "--out", folder_ / "out", "--db",     db_};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }

  const Folder folder_;
  std::string db_ = folder_ / "r.db";
};

TEST_F(HistoryTest, EveryBenchIsInIt) {
  ASSERT_EQ(bench().exit_code, 0);
  ASSERT_EQ(bench({"--seed", "5"}).exit_code, 0);
  const Ran runs = run({"history", "--db", db_});
  EXPECT_EQ(runs.exit_code, 0) << runs.errors;
  EXPECT_THAT(runs.out, HasSubstr("bench precision"));
  EXPECT_THAT(runs.out, HasSubstr("--seed 5"));
  const Ran one = run({"history", "--db", db_, "--run", "2", "--format", "json"});
  std::ifstream written(folder_ / "out");
  const auto shown = nlohmann::json::parse(written), kept = nlohmann::json::parse(one.out);
  EXPECT_EQ(kept.at("rows"), shown.at("rows"));
}

TEST_F(HistoryTest, ExportHasWhereRowsComeFrom) {
  ASSERT_EQ(bench({"--seed", "9"}).exit_code, 0);
  const auto rows = nlohmann::json::parse(run({"export", "--db", db_}).out).at("rows");
  ASSERT_FALSE(rows.empty());
  for (const char* field : {"time", "command", "commit", "compiler", "cpu", "gpu", "driver", "os",
                            "version", "config_hash", "arithmetic"}) {
    EXPECT_TRUE(rows[0].contains(field)) << field;
  }
  EXPECT_EQ(rows[0].at("seed"), 9);
}

TEST_F(HistoryTest, NothingIsKeptWhereThatIsAskedFor) {
  const Ran ran = run({"bench", "precision", "--out", folder_ / "out", "--no-db"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.errors, IsEmpty());
  EXPECT_FALSE(fs::exists(db_));
}

TEST_F(HistoryTest, AStoreThatCannotBeUsedDoesNotCostTheResult) {
  db_ = folder_ / "text";
  std::ofstream(db_) << std::string(5000, 'x');
  const Ran ran = bench();
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.errors, HasSubstr("is no results store"));
  EXPECT_TRUE(fs::exists(folder_ / "out"));
}

TEST_F(HistoryTest, DiffNamesRunsInManyWays) {
  ASSERT_EQ(bench().exit_code, 0);
  ASSERT_EQ(bench().exit_code, 0);
  const auto diff = [&](const std::string& a, const std::string& b) {
    return run({"diff", a, b, "--db", db_, "--metric", "result", "--kind", "bench precision"});
  };
  for (const Ran& ran : {diff("1", "2"), diff("last~1", "last"), diff(db_, db_)}) {
    EXPECT_EQ(ran.exit_code, 0) << ran.errors;
    EXPECT_THAT(ran.out, HasSubstr("no difference seen"));
    EXPECT_THAT(ran.out, Not(HasSubstr("better,  ")));
  }
}

TEST_F(HistoryTest, BadQuestionsGetOneSentence) {
  expect_refused({"history", "--db", folder_ / "none.db"}, "there is no results store");
  ASSERT_EQ(bench().exit_code, 0);
  expect_refused({"history", "--db", db_, "--run", "7"}, "run 7");
  expect_refused({"history", "--db", db_, "--where", "model"},
                 "--where 'model', expected FIELD=VALUE");
  expect_refused({"diff", "1", "99", "--db", db_}, "'99' names no results");
  expect_refused({"diff", "last~9", "1", "--db", db_}, "has no run 9 before the last");
}

}  // namespace
}  // namespace gallop::test
