// SPDX-License-Identifier: MIT
#include "lab/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>

#include "folder.h"
#include "gallop/error.h"
#include "lab/left_behind.h"

namespace gallop::lab {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kInf = std::numeric_limits<double>::infinity();

Row some_row(int64_t batch = 4) {
  Row row;
  row.set("model", "S").set("batch", batch).set("overlap", false).end_config();
  row.set("total_ms", 3.5).set("loss", std::nan("")).set("time_s", kInf).set("least", -kInf);
  row.set("steps", 10).set("whole", 2.0).set("note", "caf\xc3\xa9 \"x\"\n").set("nothing", nullptr);
  row.keep_samples("total_ms", {3.4, 3.5, kInf});
  return row;
}

Results some_results(std::vector<Row> rows = {some_row()}) {
  Origin o = describe_origin("gallop bench train --model S", 7);
  o.commit = "abcdef123456";
  o.clocks = "CPU 2445 MHz";
  return {o, "bench train", std::move(rows), {}};
}

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!Database::available()) GTEST_SKIP() << "SKIPPED: this build has no SQLite";
  }

  const test::Folder folder_;
  const std::string path_ = folder_ / "new/results.db";
};

std::vector<StoredRow> rows_of(const std::string& path, const Wanted& wanted = {}) {
  return Store(path, Store::Access::read).rows(wanted);
}

TEST_F(StoreTest, GivesBackWhatItWasGiven) {
  const Results r = some_results({some_row(4), some_row(8)});
  EXPECT_EQ(Store(path_, Store::Access::write).add(r), 1);
  const std::vector<StoredRow> rows = rows_of(path_);
  ASSERT_EQ(rows.size(), 2U);
  const Row& row = rows[1].row;
  EXPECT_EQ(row.size(), 11U);
  EXPECT_EQ(row.config_size(), 3U);
  EXPECT_EQ(*row.find("batch"), Value(int64_t{8}));
  EXPECT_EQ(*row.find("overlap"), Value(false));
  EXPECT_TRUE(std::isnan(std::get<double>(*row.find("loss"))));
  EXPECT_EQ(*row.find("time_s"), Value(kInf));
  EXPECT_EQ(*row.find("least"), Value(-kInf));
  EXPECT_EQ(*row.find("whole"), Value(2.0));  // not the integer
  EXPECT_EQ(*row.find("steps"), Value(int64_t{10}));
  EXPECT_EQ(*row.find("note"), Value(std::string("caf\xc3\xa9 \"x\"\n")));
  EXPECT_EQ(*row.find("nothing"), Value());
  EXPECT_EQ(row.samples(), some_row().samples());
  EXPECT_EQ(row.begin()->first, "model");

  const std::vector<StoredRun> runs = Store(path_, Store::Access::read).runs({});
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].kind, "bench train");
  EXPECT_EQ(runs[0].rows, 2);
  EXPECT_EQ(runs[0].origin.command, "gallop bench train --model S");
  EXPECT_EQ(runs[0].origin.seed, 7);
  EXPECT_EQ(runs[0].origin.cpu, r.origin.cpu);
  EXPECT_THAT(runs[0].origin.time, testing::MatchesRegex("....-..-..T..:..:..Z"));
}

TEST_F(StoreTest, GivesBackTablesAsTheyWereShown) {
  const Table first = {"Times", {some_row(1), some_row(2)}, {"a note"}, {"batch", "total_ms"}};
  const Table empty = {"Nothing", {}, {"none fitted"}, {}},
              last = {"Memory", {some_row(3)}, {}, {}};
  const Results r = results_of(some_results().origin, "suite", {first, empty, last});
  const auto expect_same = [&](const std::vector<Table>& tables) {
    ASSERT_EQ(tables.size(), 3U);
    EXPECT_EQ(tables[0].title, "Times");
    EXPECT_EQ(tables[0].notes, first.notes);
    EXPECT_EQ(tables[0].columns, first.columns);
    EXPECT_EQ(tables[0].rows.size(), 2U);
    EXPECT_THAT(tables[1].rows, IsEmpty());
    EXPECT_EQ(tables[1].notes, empty.notes);
    ASSERT_EQ(tables[2].rows.size(), 1U);
    EXPECT_EQ(*tables[2].rows[0].find("batch"), Value(int64_t{3}));
  };
  Store store(path_, Store::Access::write);
  expect_same(store.tables(store.add(r)));
  const std::string other = folder_ / "other.db";  // and by way of a file beside it
  leave_behind(r, other);
  Store(other, Store::Access::write);
  expect_same(Store(other, Store::Access::read).tables(1));
  EXPECT_EQ(store.tables(store.add(some_results())).at(0).rows.size(), 1U);
}

TEST_F(StoreTest, TakesStoresOfTheFirstLayout) {
  Store(path_, Store::Access::write).add(some_results());
  {
    const Database old(path_, Database::Access::write, 1);
    old.run("DROP TABLE shown; ALTER TABLE runs DROP COLUMN clocks; PRAGMA user_version = 1;");
  }
  EXPECT_EQ(Store(path_, Store::Access::read).runs({}).at(0).origin.clocks, "");
  EXPECT_EQ(Store(path_, Store::Access::read).tables(1).at(0).rows.size(), 1U);
  Store(path_, Store::Access::write)
      .add(results_of(some_results().origin, "x", {{"T", {}, {}, {}}}));
  EXPECT_EQ(Store(path_, Store::Access::read).tables(2).at(0).title, "T");
  const std::vector<StoredRun> runs = Store(path_, Store::Access::read).runs({});
  EXPECT_EQ(runs.at(0).origin.clocks, "");
  EXPECT_EQ(runs.at(1).origin.clocks, "CPU 2445 MHz");
}

TEST_F(StoreTest, TellsConfigurationsApartAndNotResults) {
  Row other = some_row();
  other.set("total_ms", 99.0);
  Store store(path_, Store::Access::write);
  store.add(some_results({some_row(), other, some_row(8)}));
  Results elsewhere = some_results();
  elsewhere.kind = "train";
  store.add(elsewhere);
  const std::vector<StoredRow> rows = store.rows({});
  EXPECT_EQ(rows[0].config_hash, rows[1].config_hash);
  EXPECT_NE(rows[0].config_hash, rows[2].config_hash);
  EXPECT_NE(rows[0].config_hash, rows[3].config_hash);
}

TEST_F(StoreTest, FindsByRunKindCommitAndField) {
  Store store(path_, Store::Access::write);
  store.add(some_results({some_row(4), some_row(8)}));
  Results second = some_results();
  second.kind = "train";
  second.origin.commit = "123";
  store.add(second);
  const auto count = [&](auto change) {
    Wanted w;
    change(w);
    return store.rows(w).size();
  };
  EXPECT_EQ(count([](Wanted&) {}), 3U);
  EXPECT_EQ(count([](Wanted& w) { w.run = 1; }), 2U);
  EXPECT_EQ(count([](Wanted& w) { w.run = 3; }), 0U);
  EXPECT_EQ(count([](Wanted& w) { w.kind = "train"; }), 1U);
  EXPECT_EQ(count([](Wanted& w) { w.commit = "abc"; }), 2U);
  EXPECT_EQ(count([](Wanted& w) { w.commit = "%"; }), 0U);
  EXPECT_EQ(count([](Wanted& w) { w.with = {{"batch", "8"}}; }), 1U);
  EXPECT_EQ(count([](Wanted& w) { w.with = {{"model", "S"}, {"overlap", "false"}}; }), 3U);
  EXPECT_EQ(count([](Wanted& w) { w.with = {{"colour", "red"}}; }), 0U);
  EXPECT_EQ(store.last_run(0), 2);
  EXPECT_EQ(store.last_run(1), 1);
  EXPECT_THROW(store.last_run(2), Error);
}

TEST_F(StoreTest, SeveralProcessesWriteAtOnce) {
  constexpr int kProcesses = 4, kEach = 25;
  for (int p = 0; p < kProcesses; ++p) {
    if (fork() != 0) continue;
    bool kept = true;
    for (int i = 0; i < kEach; ++i)
      kept &= keep(some_results({some_row(p), some_row(i)}), path_, 60).empty();
    _exit(kept ? 0 : 1);
  }
  for (int p = 0; p < kProcesses; ++p) {
    int status = 0;
    wait(&status);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(rows_of(path_).size(), size_t{2} * kProcesses * kEach);
}

TEST_F(StoreTest, KilledWhileWritingItHasAllRowsOfARunOrNone) {
  constexpr int64_t kRows = 50;
  Store(path_, Store::Access::write).add(some_results());
  const pid_t child = fork();
  if (child == 0) {
    for (;;) keep(some_results(std::vector<Row>(kRows, some_row())), path_);
  }
  usleep(300000);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  Store store(path_, Store::Access::write);
  const std::vector<StoredRun> runs = store.runs({});
  EXPECT_GT(runs.size(), 1U);
  for (size_t i = 1; i < runs.size(); ++i) EXPECT_EQ(runs[i].rows, kRows);
}

TEST_F(StoreTest, WhatALockedStoreDoesNotTakeComesInLater) {
  Store(path_, Store::Access::write).add(some_results());
  {
    const Database other(path_, Database::Access::write, 1);
    const Transaction lock(other);
    const std::string trouble = keep(some_results({some_row(16)}), path_, 0.05);
    EXPECT_THAT(trouble, HasSubstr("locked"));
    EXPECT_THAT(trouble, HasSubstr(path_ + ".unsaved-"));
    EXPECT_EQ(rows_of(path_).size(), 1U);
  }
  EXPECT_THAT(keep(some_results({some_row(32)}), path_), IsEmpty());
  const std::vector<StoredRow> rows = rows_of(path_);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(*rows[1].row.find("batch"), Value(int64_t{16}));
  EXPECT_EQ(rows[1].row.samples(), some_row().samples());
  EXPECT_THAT(left_behind(path_), IsEmpty());
}

TEST_F(StoreTest, WhatAFullDiskDoesNotTakeIsSaid) {
  Store(path_, Store::Access::write).add(some_results());
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit none{0, 0};
    setrlimit(RLIMIT_FSIZE, &none);
    const std::string trouble = keep(some_results(), path_, 1);
    _exit(trouble.find("kept nowhere") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(rows_of(path_).size(), 1U);  // what was there before still is
  EXPECT_THAT(keep(some_results(), path_), IsEmpty());
}

TEST_F(StoreTest, WhereNoFileCanBeTheyGoToTemporaryFiles) {
  const std::string blocked = folder_ / "file/results.db";
  std::ofstream(folder_ / "file") << "in the way";
  const std::string trouble = keep(some_results(), blocked);
  EXPECT_THAT(trouble, HasSubstr("until they can be kept"));
  ASSERT_EQ(left_behind(blocked).size(), 1U);
  fs::remove(folder_ / "file");
  EXPECT_THAT(keep(some_results(), blocked), IsEmpty());
  EXPECT_EQ(rows_of(blocked).size(), 2U);
}

TEST_F(StoreTest, ResultsComeInOnceHoweverOften) {
  const Results r = some_results();
  Store store(path_, Store::Access::write);
  EXPECT_EQ(store.add(r), store.add(r));
  EXPECT_EQ(store.rows({}).size(), 1U);
}

std::string refused(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST_F(StoreTest, RefusesOtherFilesAndLeavesThemAsTheyWere) {
  const std::string text = folder_ / "text";
  std::ofstream(text) << std::string(5000, 'x');
  EXPECT_THAT(refused([&] { Store(text, Store::Access::write); }),
              HasSubstr("is no results store"));
  EXPECT_EQ(fs::file_size(text), 5000U);

  const std::string theirs = folder_ / "theirs.db";
  Database(theirs, Database::Access::write, 1).run("CREATE TABLE other(x)");
  EXPECT_THAT(refused([&] { Store(theirs, Store::Access::write); }), HasSubstr("somebody else's"));

  const std::string newer = folder_ / "newer.db";
  Database(newer, Database::Access::write, 1).run("PRAGMA user_version = 99");
  EXPECT_THAT(refused([&] { Store(newer, Store::Access::write); }), HasSubstr("newer gallop"));

  EXPECT_THAT(refused([&] { Store(folder_ / "none.db", Store::Access::read); }),
              HasSubstr("there is no results store"));
  EXPECT_FALSE(fs::exists(folder_ / "none.db"));
}

TEST_F(StoreTest, ReadsWhileAnotherWrites) {
  Store store(path_, Store::Access::write);
  store.add(some_results());
  const Database other(path_, Database::Access::write, 1);
  const Transaction lock(other);
  EXPECT_EQ(rows_of(path_).size(), 1U);
}

}  // namespace
}  // namespace gallop::lab
