// SPDX-License-Identifier: MIT
// A save that fails keeps the file that was there.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

size_t files_in(const Folder& folder) {
  namespace fs = std::filesystem;
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()));
}

// Saves once, then again with `fail` in force, which must throw and leave the first file.
template <class Fail>
void expect_old_file_kept(const Folder& folder, const std::string& path, Fail save_again) {
  World w({plain("adam")});
  w.fill_grads(1);
  w.optimizer.step();
  if (!std::filesystem::exists(path)) w.optimizer.save(path);
  const Snapshot first = w.snapshot();
  const size_t files = files_in(folder);
  w.optimizer.step();
  const Snapshot second = w.snapshot();
  expect_error(ErrorCode::io, {path}, [&] { save_again(w.optimizer); });
  EXPECT_EQ(difference(second, w.snapshot()), "");
  EXPECT_EQ(files_in(folder), files);
  World loaded({plain("adam")});
  loaded.optimizer.load(path);
  EXPECT_EQ(loaded.optimizer.steps(0), 1);
}

TEST(Save, ReplacesTheFileAndLeavesNoOther) {
  const Folder folder;
  World w({plain("adam")});
  for (int64_t k = 0; k < 3; ++k) {
    w.optimizer.save(folder / "checkpoint");
    World loaded({plain("adam")});
    loaded.optimizer.load(folder / "checkpoint");
    EXPECT_EQ(loaded.optimizer.steps(0), k);
    EXPECT_EQ(files_in(folder), 1u);
    w.optimizer.step();
  }
}

TEST(Save, UnwritableFolderKeepsTheOldFile) {
  const Folder folder;
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  expect_old_file_kept(folder, folder / "checkpoint", [&](const Optimizer& o) {
    using std::filesystem::perms;
    std::filesystem::permissions(folder.path(), perms::owner_read | perms::owner_exec);
    try {
      o.save(folder / "checkpoint");
    } catch (...) {
      std::filesystem::permissions(folder.path(), perms::owner_all);
      throw;
    }
  });
}

// The longest name a file may have leaves no room for a temporary beside it.
TEST(Save, FailureToCreateTheNewFileKeepsTheOldOne) {
  const Folder folder;
  const std::string path = folder / std::string(255, 'n');
  World w({plain("adam")});
  w.fill_grads(1);
  w.optimizer.step();
  w.optimizer.save(folder / "short");
  std::filesystem::rename(folder / "short", path);
  expect_old_file_kept(folder, path, [&](const Optimizer& o) { o.save(path); });
}

// As on a full disk: writing fails half way.
TEST(Save, FailureToWriteKeepsTheOldFile) {
  const Folder folder;
  expect_old_file_kept(folder, folder / "checkpoint", [&](const Optimizer& o) {
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const auto handler = signal(SIGXFSZ, SIG_IGN);
    const rlimit small{4096, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const auto restore = [&] {
      setrlimit(RLIMIT_FSIZE, &before);
      signal(SIGXFSZ, handler);
    };
    try {
      o.save(folder / "checkpoint");
    } catch (...) {
      restore();
      throw;
    }
    restore();
  });
}

TEST(Save, FolderThatDoesNotExist) {
  const Folder folder;
  const World w({plain("adam")});
  expect_error(ErrorCode::io, {folder / "nowhere/file"},
               [&] { w.optimizer.save(folder / "nowhere/file"); });
  EXPECT_EQ(files_in(folder), 0u);
}

TEST(Save, FolderIsNotReplacedByAFile) {
  const Folder folder;
  const World w({plain("adam")});
  std::filesystem::create_directory(folder / "inner");
  expect_error(ErrorCode::io, {folder / "inner"}, [&] { w.optimizer.save(folder / "inner"); });
  EXPECT_TRUE(std::filesystem::is_directory(folder / "inner"));
  EXPECT_EQ(files_in(folder), 1u);
}

}  // namespace
}  // namespace gallop::test
