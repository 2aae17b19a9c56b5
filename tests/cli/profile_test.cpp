// SPDX-License-Identifier: MIT
// The program itself: a profile starts it again for each run.
#include <array>
#include <csignal>
#include <cstdio>
#include <set>

#include "cli/command.h"
#include "cli/program.h"
#include "lab/database.h"

namespace gallop::test {
namespace {

using testing::HasSubstr;

// Its output, and how it ended.
Ran start(const std::string& words) {
  const std::string command = std::string(GALLOP_PROGRAM) + " " + words + " 2>&1";
  Ran ran{-1, "", ""};
  std::FILE* out = popen(command.c_str(), "r");
  if (out == nullptr) return ran;
  std::array<char, 4096> part{};
  while (std::fgets(part.data(), part.size(), out) != nullptr) ran.out += part.data();
  ran.exit_code = pclose(out) >> 8;
  return ran;
}

const std::string kSmall =
    "--model nano:layers=1:width=32:heads=2:context=16:vocabulary=64 --data "
    "synthetic:vocabulary=64,branching=2 --steps 3 --batch 2 --device cpu ";

TEST(ProfileCommand, ShowsFiguresAndDifferencesAndKeepsThem) {
  const Folder folder;
  const std::string db = folder / "r.db";
  const Ran ran = start("profile --optimizer adamw,lion:8bit --repeat 2 --min-length 4 " + kSmall +
                        "--db " + db);
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("batch of 2 x 4 to 16 tokens, padded"));
  EXPECT_THAT(ran.out, HasSubstr("2 finished"));
  EXPECT_THAT(ran.out, HasSubstr("Difference to adamw, %"));
  EXPECT_THAT(ran.out, HasSubstr("noise as measured here"));
  EXPECT_THAT(ran.out, HasSubstr("least memory on the device: lion 8bit"));
  if (!lab::Database::available()) return;
  const Ran runs = run({"history", "--db", db});
  EXPECT_THAT(runs.out, HasSubstr("profile run"));
}

TEST(ProfileCommand, StoppedItKeepsTheRunsThatHadEnded) {
  const Folder folder;
  const std::string db = folder / "r.db";
  const pid_t program =
      start({GALLOP_PROGRAM, "profile", "--optimizer", "adamw", "--repeat", "100000", "--model",
             "nano:layers=1:width=32:heads=2:context=16:vocabulary=64", "--data",
             "synthetic:vocabulary=64,branching=2", "--steps", "3", "--device", "cpu", "--db", db},
            folder);
  std::set<pid_t> seen;  // one that counts for nothing, two that end, and one more
  for (int i = 0; i < 100000 && seen.size() < 4; ++i, usleep(500)) {
    for (const pid_t child : children_of(program)) seen.insert(child);
  }
  kill(program, SIGTERM);
  EXPECT_EQ(end_of(program), 130);
  EXPECT_THAT(read_file(folder / "errors"),
              testing::ContainsRegex("stopped; ([2-9]|[1-9][0-9]+) runs had ended"));
  EXPECT_EQ(read_file(folder / "out"), "");
  if (!lab::Database::available()) return;
  EXPECT_THAT(run({"history", "--db", db, "--kind", "profile run"}).out, HasSubstr("profile run"));
}

TEST(ProfileCommand, WhatFailsForAllIsOneSentence) {
  const Ran ran = start("profile --optimizer adamw,sgd --precision fp16 --no-db " + kSmall);
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.out, HasSubstr("fp16"));
  EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 1) << ran.out;
}

TEST(ProfileCommand, TheSuiteHasTheEight) {
  const Ran ran = start("suite profile --repeat 1 --no-db --format csv " + kSmall);
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  for (const char* name : {"adafactor,fp32", "adamw,fp32", "adamp,fp32", "qhm,fp32", "sophiag,fp32",
                           "adam,8bit", "lion,8bit", "adam,fp32"}) {
    EXPECT_THAT(ran.out, HasSubstr(name));
  }
}

TEST(ProfileCommand, BadInputGetsOneSentence) {
  const auto refused = [](const std::vector<std::string>& words, const std::string& part) {
    std::vector<std::string> all = {"profile", "--device", "cpu", "--no-db"};
    all.insert(all.end(), words.begin(), words.end());
    expect_refused(all, part);
  };
  refused({"--optimizer", "adamx"}, "adamx");
  refused({"--optimizer", "adamw:9bit"}, "9bit");
  refused({"--optimizer", "adamw", "--baseline", "lion"}, "baseline lion is not profiled");
  refused({"--steps", "2"}, "2 steps, expected at least 3");
  refused({"--repeat", "0"}, "--repeat");
}

}  // namespace
}  // namespace gallop::test
