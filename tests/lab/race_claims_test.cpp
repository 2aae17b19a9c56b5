// SPDX-License-Identifier: MIT
#include "lab/race_claims.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "folder.h"
#include "lab/host.h"

namespace gallop::lab {
namespace {

TEST(RaceClaims, OneHasATrialUntilItGivesItBack) {
  const test::Folder folder;
  RaceClaims one(folder.path()), other(folder.path());
  EXPECT_TRUE(one.take("a"));
  EXPECT_TRUE(one.take("a"));
  EXPECT_FALSE(other.take("a"));
  EXPECT_TRUE(other.take("b"));
  one.give_back("a");
  EXPECT_TRUE(other.take("a"));
}

TEST(RaceClaims, WhoeverEndsGivesAllBack) {
  const test::Folder folder;
  EXPECT_TRUE(RaceClaims(folder.path()).take("a"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(RaceClaims, AStaleOneIsTakenOverByOneAlone) {
  const test::Folder folder;
  std::ofstream(folder / "a.claim.0") << "another-machine 1\n";
  constexpr double kStaleS = 0.05;
  RaceClaims one(folder.path(), kStaleS), other(folder.path(), kStaleS);
  EXPECT_FALSE(one.take("a"));  // it may be touched at any moment
  EXPECT_FALSE(other.take("a"));
  usleep(100000);
  EXPECT_TRUE(one.take("a"));
  EXPECT_FALSE(other.take("a"));
  one.give_back("a");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(RaceClaims, OneThatIsTouchedIsNotStale) {
  const test::Folder folder;
  constexpr double kStaleS = 0.5;
  RaceClaims one(folder.path(), kStaleS), other(folder.path(), kStaleS);
  EXPECT_TRUE(one.take("a"));
  for (int i = 0; i < 7; ++i) {
    usleep(100000);
    one.keep();
    EXPECT_FALSE(other.take("a"));
  }
}

TEST(RaceClaims, OfAProcessThatEndedItIsStaleAtOnce) {
  const test::Folder folder;
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  waitpid(ended, nullptr, 0);
  std::ofstream(folder / "a.claim.0") << host_name() << " " << ended << "\n";
  EXPECT_TRUE(RaceClaims(folder.path()).take("a"));
}

}  // namespace
}  // namespace gallop::lab
