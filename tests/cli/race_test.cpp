// SPDX-License-Identifier: MIT
// The program itself: a race starts it again for each trial.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/command.h"
#include "folder.h"
#include "gallop/rules.h"
#include "lab/database.h"

namespace gallop::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RaceCommandTest : public testing::Test {
 protected:
  pid_t start(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {
        GALLOP_PROGRAM,   "race",
        "--model",        "nano:layers=1:width=32:heads=2:context=16:vocabulary=64",
        "--data",         "synthetic:vocabulary=64,branching=2",
        "--optimizer",    "adamw,lion:8bit",
        "--batch",        "4",
        "--schedule",     "cosine",
        "--eval-batches", "2",
        "--device",       "cpu",
        "--folder",       folder_ / "trials"};
    words.insert(words.end(), more.begin(), more.end());
    const pid_t pid = fork();
    if (pid != 0) return pid;
    setpgid(0, 0);
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    if (std::freopen((folder_ / "out").c_str(), "w", stdout) == nullptr ||
        std::freopen((folder_ / "errors").c_str(), "w", stderr) == nullptr) {
      _exit(126);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
  static int end_of(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  int race(const std::vector<std::string>& more) const { return end_of(start(more)); }
  std::string read(const char* name) const {
    std::ifstream in(folder_ / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  const Folder folder_;
};

TEST_F(RaceCommandTest, ShowsWhoWinsAndKeepsIt) {
  const std::string db = folder_ / "r.db";
  ASSERT_EQ(race({"--steps", "20", "--trials", "2", "--seeds", "2", "--jobs", "2", "--db", db}), 0)
      << read("errors");
  const std::string shown = read("out");
  EXPECT_THAT(shown, HasSubstr("Race: validation loss after 20 steps"));
  EXPECT_THAT(shown, HasSubstr("lion 8bit"));
  EXPECT_THAT(shown, HasSubstr("2 finished"));
  // Once more: all of it is there, and the figures are the same.
  ASSERT_EQ(race({"--steps", "20", "--trials", "2", "--seeds", "2", "--no-db"}), 0);
  EXPECT_EQ(read("out"), shown);
  if (!lab::Database::available()) return;
  const Ran runs = run({"history", "--db", db});
  EXPECT_THAT(runs.out, HasSubstr("race trial"));
}

TEST_F(RaceCommandTest, ATargetAndABudgetAreGoals) {
  ASSERT_EQ(race({"--to-loss", "4.2", "--steps", "20", "--trials", "1", "--seeds", "1", "--no-db"}),
            0)
      << read("errors");
  EXPECT_THAT(read("out"), HasSubstr("seconds of training to a validation loss of 4.2"));
  ASSERT_EQ(race({"--budget", "0.1s", "--trials", "1", "--seeds", "1", "--no-db"}), 0)
      << read("errors");
  EXPECT_THAT(read("out"), HasSubstr("validation loss after 0.1 s of training"));
}

TEST_F(RaceCommandTest, EveryOptimizerTakesItsUsualRates) {
  std::string all;
  for (const std::string& name : rule_names()) all += (all.empty() ? "" : ",") + name;
  ASSERT_EQ(race({"--optimizer", all, "--steps", "5", "--trials", "2", "--seeds", "1", "--no-db"}),
            0)
      << read("errors");
  EXPECT_THAT(read("out"), testing::Not(HasSubstr("nothing worked")));
}

TEST_F(RaceCommandTest, StoppedItSaysHowToGoOn) {
  const std::vector<std::string> endless = {"--steps", "100000000", "--trials", "1", "--no-db"};
  const pid_t pid = start(endless);
  usleep(500000);
  kill(pid, SIGINT);
  EXPECT_EQ(end_of(pid), 130);
  EXPECT_THAT(read("errors"), HasSubstr("the same command goes on"));
  EXPECT_EQ(read("out"), "");
}

TEST_F(RaceCommandTest, BadInputGetsOneSentence) {
  const auto refused = [&](const std::vector<std::string>& words, const std::string& part) {
    EXPECT_NE(race(words), 0);
    const std::string errors = read("errors");
    EXPECT_THAT(errors, HasSubstr(part));
    EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
  };
  refused({"--budget", "soon"}, "--budget 'soon', expected a time such as 90s, 10m or 1h");
  refused({"--budget", "1m", "--to-loss", "3"}, "expected one goal");
  refused({"--tune", "lr=fast"}, "lr=fast");
  refused({"--optimizer", "adamx"}, "adamx");
  refused({"--optimizer", "adamw:9bit"}, "9bit");
  fs::create_directories(folder_ / "trials");
  std::ofstream(folder_ / "trials/origin.txt") << "another\n";
  refused({"--steps", "5"}, "has trials of another build or machine");
}

}  // namespace
}  // namespace gallop::test
