// SPDX-License-Identifier: MIT
// Runs that are ended by kill -9 while they save, again and again.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <sstream>

#include "../gpt/tiny_run.h"
#include "core/random.h"
#include "folder.h"
#include "io/safetensors.h"

extern char** environ;

namespace gallop::gpt {
namespace {

using test::Folder;
namespace fs = std::filesystem;

class Killed : public testing::Test {
 protected:
  static constexpr int kSteps = 60;
  pid_t start(const std::string& file, bool resume) const {
    std::vector<std::string> words = {GALLOP_PROGRAM, "train"};
    std::istringstream more(fmt::format(
        "--model {} --data {} --steps {} --batch 4 --threads 1 --save-every 1 --eval-every 10 "
        "--eval-batches 2 --checkpoint {}",
        kTinyModel, kTinyData, kSteps, file));
    for (std::string word; more >> word;) words.push_back(word);
    if (resume) words.emplace_back("--resume");
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    for (int fd : {STDOUT_FILENO, STDERR_FILENO}) {
      posix_spawn_file_actions_addopen(&quiet, fd, "/dev/null", O_WRONLY, 0);
    }
    pid_t pid = 0;
    EXPECT_EQ(posix_spawn(&pid, GALLOP_PROGRAM, &quiet, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&quiet);
    return pid;
  }
  Folder folder_;
};

// Each time at some moment after it has saved again, so that all of them together come to an end.
TEST_F(Killed, AtAnyMomentItGoesOnToTheSameEnd) {
  int status = 0;
  ASSERT_GT(waitpid(start(folder_ / "whole", false), &status, 0), 0);
  ASSERT_EQ(status, 0);
  const std::string file = folder_ / "run";
  const auto saved = [&] {
    std::error_code none;
    return fs::last_write_time(file, none);
  };
  int kills = 0;
  bool ended = false;
  while (!ended) {
    ASSERT_LE(kills, kSteps);
    const auto before = saved();
    const pid_t pid = start(file, fs::exists(file));
    while (!ended && saved() == before) {
      ended = waitpid(pid, &status, WNOHANG) == pid;
      usleep(100);
    }
    if (ended) break;
    usleep(static_cast<useconds_t>(combine(1, static_cast<Bits64>(kills)) % 6000));
    kill(pid, SIGKILL);
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ended = WIFEXITED(status);
    kills += ended ? 0 : 1;
  }
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_GT(kills, 0);
  const auto a = io::SafetensorsFile::open(folder_ / "whole"), b = io::SafetensorsFile::open(file);
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const auto& [name, t] : a.tensors()) {
    EXPECT_EQ(std::memcmp(t.data, b.find(name)->data, t.bytes), 0) << name;
  }
  EXPECT_EQ(a.metadata().at("loss"), b.metadata().at("loss"));
  EXPECT_EQ(a.metadata().at("smoothed"), b.metadata().at("smoothed"));
  EXPECT_EQ(content(folder_ / "whole.optimizer.60"), content(folder_ / "run.optimizer.60"));
  int left = 0;  // the run and its state, and the other
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_.path())) ++left;
  EXPECT_EQ(left, 4);
}

}  // namespace
}  // namespace gallop::gpt
