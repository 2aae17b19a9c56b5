// SPDX-License-Identifier: MIT
#include "jit/cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "folder.h"

namespace gallop::jit {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPlenty = 1 << 20;

TEST(Digest, IsThatOfTheTextAlone) {
  EXPECT_EQ(digest(""), "6c62272e07bb014262b821756295c58d");   // FNV-1a's offset basis
  EXPECT_EQ(digest("a"), "d228cb696f1a8caf78912b704e4a8964");  // its published value
  EXPECT_NE(digest("ab"), digest("ba"));
}

TEST(Cache, KeepsWhatItIsGiven) {
  const test::Folder folder;
  const Cache cache(folder / "new/deep", kPlenty);
  ASSERT_TRUE(cache.usable()) << cache.problem();
  EXPECT_FALSE(cache.read("x"));
  const std::string bytes("one\0two", 7);
  ASSERT_TRUE(cache.keep("x", bytes));
  EXPECT_EQ(cache.read("x"), bytes);
  EXPECT_EQ(cache.find("x"), cache.folder() + "/x");
  EXPECT_EQ(Cache(cache.folder(), kPlenty).read("x"), bytes);
}

TEST(Cache, DamagedEntriesAreRemoved) {
  const test::Folder folder;
  const Cache cache(folder / "c", kPlenty);
  const auto damage = [&](const std::function<void(const std::string&)>& how) {
    const std::string path = *cache.keep("x", "some bytes");
    how(path);
    EXPECT_FALSE(cache.read("x"));
    EXPECT_FALSE(fs::exists(path));
  };
  damage([](const std::string& p) { fs::resize_file(p, fs::file_size(p) - 1); });
  damage([](const std::string& p) { fs::resize_file(p, 3); });
  damage([](const std::string& p) { fs::resize_file(p, 0); });
  damage([](const std::string& p) {
    std::fstream f(p, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(2);
    f.put('X');
  });
  damage([](const std::string& p) { std::ofstream(p) << "something else altogether, and long"; });
}

TEST(Cache, TheLongestUnusedMakeRoom) {
  const test::Folder folder;
  const Cache cache(folder / "c", 3500);
  const std::string bytes(1000, 'x');
  const auto use_at = [&](const char* name, int minutes) {
    fs::last_write_time((folder / "c/") + name,
                        fs::file_time_type::clock::now() + std::chrono::minutes(minutes));
  };
  cache.keep("a", bytes);
  use_at("a", -30);
  cache.keep("b", bytes);
  use_at("b", -20);
  cache.keep("c", bytes);
  use_at("c", -10);
  EXPECT_TRUE(cache.read("a"));  // used just now
  cache.keep("d", bytes);
  EXPECT_TRUE(cache.read("a"));
  EXPECT_FALSE(cache.read("b"));
  EXPECT_TRUE(cache.read("c"));
  EXPECT_TRUE(cache.read("d"));
  EXPECT_FALSE(cache.keep("e", std::string(4000, 'x')));  // more than all of it
  EXPECT_TRUE(cache.read("d"));
}

TEST(Cache, ForgottenTemporariesAreRemoved) {
  const test::Folder folder;
  const Cache cache(folder / "c", kPlenty);
  cache.keep("first", "bytes");
  for (const char* name : {"x.tmp.1.1", "y.tmp.2.1"}) {
    std::ofstream((folder / "c/") + name) << "half";
  }
  fs::last_write_time((folder / "c/x.tmp.1.1"),
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  cache.keep("z", "bytes");
  EXPECT_FALSE(fs::exists((folder / "c/x.tmp.1.1")));
  EXPECT_TRUE(fs::exists((folder / "c/y.tmp.2.1")));  // someone may be writing it
}

TEST(Cache, FoldersThatOthersWriteToAreNotUsed) {
  const test::Folder folder;
  fs::create_directory((folder / "open"));
  chmod((folder / "open").c_str(), 0777);
  const Cache open((folder / "open"), kPlenty);
  EXPECT_FALSE(open.usable());
  EXPECT_EQ(open.problem(), "others may write to it");
  EXPECT_FALSE(open.keep("x", "bytes"));
  std::ofstream((folder / "file")) << "no folder";
  EXPECT_FALSE(Cache((folder / "file"), kPlenty).usable());
  EXPECT_FALSE(Cache((folder / "file/below"), kPlenty).keep("x", "bytes"));
  EXPECT_FALSE(Cache("", kPlenty).usable());
  EXPECT_FALSE(Cache("", kPlenty).read("x"));
}

TEST(Cache, SeveralProcessesAtOnce) {
  const test::Folder folder;
  const std::string path = folder / "c";
  // Each writes and reads the same names, with room for a few: what is read is always whole.
  const auto work = [&](int seed) {
    const Cache cache(path, 20000);
    for (int i = 0; i < 200; ++i) {
      const std::string name = fmt::format("e{}", (i * 7 + seed) % 10);
      cache.keep(name, std::string(3000 + static_cast<size_t>(name.back()), name.back()));
      const std::string other = fmt::format("e{}", (i * 3 + seed) % 10);
      const auto bytes = cache.read(other);
      if (bytes && *bytes != std::string(3000 + static_cast<size_t>(other.back()), other.back())) {
        _exit(1);
      }
    }
    _exit(0);
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) work(i);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace gallop::jit
