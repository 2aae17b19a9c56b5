// SPDX-License-Identifier: MIT
// The program itself: a race starts it again for each trial.
#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "cli/command.h"
#include "cli/program.h"
#include "cli/race_presets.h"
#include "gallop/rules.h"
#include "lab/database.h"
#include "lab/search_space.h"

namespace gallop::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RaceCommandTest : public testing::Test {
 protected:
  pid_t start(const std::vector<std::string>& more,
              const std::vector<std::string>& before = {}) const {
    std::vector<std::string> words = before;
    words.insert(words.end(),
                 {GALLOP_PROGRAM, "race", "--model",
                  "nano:layers=1:width=32:heads=2:context=16:vocabulary=64", "--data",
                  "synthetic:vocabulary=64,branching=2", "--optimizer", "adamw,lion:8bit",
                  "--batch", "4", "--schedule", "cosine", "--eval-batches", "2", "--device", "cpu",
                  "--folder", folder_ / "trials"});
    words.insert(words.end(), more.begin(), more.end());
    return test::start(std::move(words), folder_);
  }
  int race(const std::vector<std::string>& more) const { return end_of(start(more)); }
  std::string read(const char* name) const { return read_file(folder_ / name); }

  const Folder folder_;
};

TEST_F(RaceCommandTest, ShowsWhoWinsAndKeepsIt) {
  const std::string db = folder_ / "r.db";
  ASSERT_EQ(race({"--steps", "20", "--trials", "2", "--seeds", "2", "--jobs", "2", "--db", db}), 0)
      << read("errors");
  const std::string shown = read("out");
  EXPECT_THAT(shown, HasSubstr("Race on nano:layers=1:width=32:heads=2:context=16:vocabulary=64: "
                               "validation loss after 20 steps"));
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
  for (int i = 0; i < 6000 && children_of(pid).empty(); ++i) usleep(10000);
  kill(pid, SIGINT);
  EXPECT_EQ(end_of(pid), 130);
  EXPECT_THAT(read("errors"), HasSubstr("the same command goes on"));
  EXPECT_EQ(read("out"), "");
}

TEST_F(RaceCommandTest, PresetsAreDefaultsThatFlagsOverride) {
  ASSERT_EQ(race({"--preset", "adafactor-decay", "--optimizer", "adamw,adafactor", "--steps", "5",
                  "--seeds", "1", "--no-db"}),
            0)
      << read("errors");
  EXPECT_THAT(read("out"), HasSubstr("validation loss after 5 steps"));
  for (const char* tried :
       {"decay_rate=-1", "decay_rate=-0.8", "decay_rate=-0.5", "decay_rate=0"}) {
    EXPECT_THAT(read("out"), HasSubstr(tried));
  }
  EXPECT_THAT(read("out"), HasSubstr("4 with 1 seed each"));
  const cli::RacePreset* lion = cli::find_preset("lion-8bit-rate");
  ASSERT_NE(lion, nullptr);
  EXPECT_EQ(lion->optimizers, std::vector<std::string>{"lion:8bit"});
  EXPECT_EQ(lion->steps, 3000);
  const lab::SearchRange rates = lab::parse_range(lion->tune.at("lion"));
  EXPECT_EQ(rates.low, 3e-5);
  EXPECT_EQ(rates.high, 1e-4);
  const Ran help = run({"race", "--help"});
  for (const cli::RacePreset& p : cli::race_presets()) EXPECT_THAT(help.out, HasSubstr(p.name));
}

TEST_F(RaceCommandTest, TheSlurmScriptRunsTheSameCommandByTasksThatShareAFolder) {
  ASSERT_EQ(race({"--print-slurm", "--slurm-tasks=8", "--steps", "77", "--out", "it's"}), 0);
  const std::string script = read("out");
  EXPECT_THAT(script, testing::StartsWith("#!/bin/bash\n#SBATCH "));
  EXPECT_THAT(script, HasSubstr("#SBATCH --array=0-7\n"));
  EXPECT_THAT(script, testing::Not(HasSubstr("--gpus")));
  EXPECT_THAT(script, HasSubstr("exec " GALLOP_PROGRAM " race "));
  EXPECT_THAT(script, HasSubstr("--steps 77 --out 'it'\\''s' --device cpu --shared --folder " +
                                folder_ / "trials\n"));
  EXPECT_THAT(script, testing::Not(HasSubstr("slurm")));
  EXPECT_FALSE(fs::exists(folder_ / "trials"));
}

TEST_F(RaceCommandTest, OfThoseWhoShareAFolderOneShowsTheRace) {
  const std::vector<std::string> flags = {"--steps", "5", "--trials", "1",
                                          "--seeds", "1", "--no-db",  "--shared"};
  ASSERT_EQ(race(flags), 0) << read("errors");
  EXPECT_THAT(read("out"), HasSubstr("lion 8bit"));
  ASSERT_EQ(race(flags), 0) << read("errors");
  EXPECT_EQ(read("out"), "");
  EXPECT_THAT(read("errors"), HasSubstr("without --shared shows it again"));
}

TEST_F(RaceCommandTest, ATrialThatTakesTooLongIsAnOutcome) {
  ASSERT_EQ(race({"--steps", "100000000", "--trials", "1", "--seeds", "1", "--optimizer", "adamw",
                  "--trial-timeout", "0.3s", "--no-db"}),
            0)
      << read("errors");
  EXPECT_THAT(read("out"), HasSubstr("1 timed out"));
}

// The leaderboard's figures that are the same wherever it runs.
std::vector<std::vector<std::string>> standing(const std::string& csv) {
  std::vector<std::vector<std::string>> out;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream cells(line);
    std::vector<std::string>& row = out.emplace_back();
    for (std::string cell; std::getline(cells, cell, ',') && row.size() < 8;) row.push_back(cell);
  }
  return out;
}

class MpiRaceTest : public RaceCommandTest {
 protected:
  void SetUp() override {
    if (std::system("mpirun --version > /dev/null 2>&1") != 0 ||
        !fs::exists(fs::path(GALLOP_PROGRAM).parent_path() / "libgallop_mpi.so")) {
      GTEST_SKIP() << "there is no mpirun, or no MPI when this was built: not tested";
    }
  }
  pid_t start_ranks(const std::vector<std::string>& more) const {
    return start(
        more, {"mpirun", "--allow-run-as-root", "--oversubscribe", "--enable-recovery", "-n", "3"});
  }
  static bool is_rank(pid_t pid, int rank) {
    const std::string all = read_file(fmt::format("/proc/{}/environ", pid));
    const std::string wanted = fmt::format("OMPI_COMM_WORLD_RANK={}", rank);
    return all.find(wanted + '\0') != std::string::npos;
  }
  // Once it runs a trial.
  static pid_t busy_rank(pid_t mpirun, int rank) {
    for (int i = 0; i < 2000; ++i, usleep(5000)) {
      for (const pid_t pid : children_of(mpirun)) {
        if (is_rank(pid, rank) && !children_of(pid).empty()) return pid;
      }
    }
    return -1;
  }
};

TEST_F(MpiRaceTest, IsTheSameRace) {
  const std::vector<std::string> flags = {"--steps", "20",       "--trials", "2",      "--seeds",
                                          "2",       "--format", "csv",      "--no-db"};
  ASSERT_EQ(end_of(start_ranks(flags)), 0) << read("errors");
  const std::string by_ranks = read("out");
  ASSERT_EQ(race(flags), 0);  // all of it is there
  EXPECT_EQ(read("out"), by_ranks);
  fs::remove_all(folder_ / "trials");
  ASSERT_EQ(race(flags), 0);
  EXPECT_EQ(standing(read("out")), standing(by_ranks));
}

TEST_F(MpiRaceTest, GoesOnWithoutARankThatIsKilled) {
  const pid_t mpirun = start_ranks(
      {"--steps", "5000", "--trials", "2", "--seeds", "1", "--rank-timeout", "2s", "--no-db"});
  const pid_t rank = busy_rank(mpirun, 2);
  ASSERT_GT(rank, 0) << read("errors");
  kill(rank, SIGKILL);
  EXPECT_EQ(end_of(mpirun), 0);
  EXPECT_THAT(read("out"), HasSubstr("1 finished"));
  EXPECT_THAT(read("errors"), HasSubstr("ranks that were lost"));
}

TEST_F(RaceCommandTest, WithoutTheModuleMpirunGetsOneSentence) {
  const std::string alone = folder_ / "gallop";
  fs::copy_file(GALLOP_PROGRAM, alone);
  const std::string command =
      fmt::format("OMPI_COMM_WORLD_SIZE=2 {} race --device cpu 2> {}", alone, folder_ / "errors");
  EXPECT_NE(std::system(command.c_str()), 0);
  EXPECT_THAT(read("errors"),
              HasSubstr("started by mpirun, but libgallop_mpi.so cannot be loaded"));
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
  refused({"--trial-timeout", "late"}, "--trial-timeout 'late', expected a time");
  refused({"--preset", "sgd-rate"}, "sgd-rate");
  refused({"--optimizer", "adamx"}, "adamx");
  refused({"--optimizer", "adamw:9bit"}, "9bit");
  fs::create_directories(folder_ / "trials");
  std::ofstream(folder_ / "trials/origin.txt") << "another\n";
  refused({"--steps", "5"}, "has trials of another build or machine");
}

}  // namespace
}  // namespace gallop::test
