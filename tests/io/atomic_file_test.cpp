// SPDX-License-Identifier: MIT
#include "io/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "folder.h"
#include "gallop/error.h"

namespace gallop::io {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      found.push_back(entry.path().filename().string());
    }
    return found;
  }

  test::Folder folder_;
};

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class Action>
std::string io_error(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    return error.what();
  }
  ADD_FAILURE() << "expected an Error";
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(AtomicFileTest, WritesAllPartsInOrderAndLeavesOnlyTheTarget) {
  AtomicFile file(path("a"));
  file.write("one", 3);
  file.write("", 0);
  file.write(nullptr, 0);
  file.write("\0two", 4);
  file.commit();
  EXPECT_EQ(contents(path("a")), std::string("one\0two", 7));
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(AtomicFileTest, TargetKeepsItsOldBytesUntilCommit) {
  write_file_atomically(path("a"), "old");
  AtomicFile file(path("a"));
  file.write("new", 3);
  EXPECT_EQ(contents(path("a")), "old");
  file.commit();
  EXPECT_EQ(contents(path("a")), "new");
}

TEST_F(AtomicFileTest, TemporaryIsNamedAfterTargetAndProcess) {
  AtomicFile file(path("a"));
  ASSERT_EQ(names().size(), 1u);
  EXPECT_EQ(names()[0].rfind("a.tmp." + std::to_string(::getpid()) + ".", 0), 0u) << names()[0];
}

TEST_F(AtomicFileTest, WithoutCommitNothingChanges) {
  write_file_atomically(path("a"), "old");
  {
    AtomicFile file(path("a"));
    file.write("new", 3);
  }
  EXPECT_EQ(contents(path("a")), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(AtomicFileTest, TwoWritersOfOneTargetDoNotMix) {
  AtomicFile first(path("a"));
  AtomicFile second(path("a"));
  first.write("1111", 4);
  second.write("22", 2);
  first.commit();
  EXPECT_EQ(contents(path("a")), "1111");
  second.commit();
  EXPECT_EQ(contents(path("a")), "22");
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(AtomicFileTest, SkipsTemporariesThatACrashLeft) {
  std::string stale;
  {
    AtomicFile file(path("a"));
    stale = names().at(0);
  }
  const std::size_t dot = stale.rfind('.');
  const std::string next =
      stale.substr(0, dot + 1) + std::to_string(std::stoi(stale.substr(dot + 1)) + 1);
  std::ofstream(path(next)) << "stale";
  write_file_atomically(path("a"), "new");
  EXPECT_EQ(contents(path("a")), "new");
  EXPECT_EQ(contents(path(next)), "stale");
}

TEST_F(AtomicFileTest, RefusesAMissingDirectory) {
  const std::string what = io_error([&] { AtomicFile file(path("none/a")); });
  EXPECT_TRUE(has(what, path("none/a"))) << what;
  EXPECT_TRUE(has(what, "No such file or directory")) << what;
  EXPECT_TRUE(names().empty());
}

TEST_F(AtomicFileTest, RefusesATargetThatIsADirectory) {
  fs::create_directory(path("d"));
  const std::string what = io_error([&] { AtomicFile file(path("d")); });
  EXPECT_TRUE(has(what, path("d"))) << what;
  EXPECT_TRUE(has(what, "is a directory")) << what;
  EXPECT_EQ(names(), std::vector<std::string>{"d"});
}

TEST_F(AtomicFileTest, RefusesToReplaceAPipe) {
  ASSERT_EQ(::mkfifo(path("p").c_str(), 0600), 0);
  const std::string what = io_error([&] { AtomicFile file(path("p")); });
  EXPECT_TRUE(has(what, "expected a regular file")) << what;
}

TEST_F(AtomicFileTest, RefusesAnEmptyPath) {
  const std::string what = io_error([] { AtomicFile file(""); });
  EXPECT_TRUE(has(what, "expected a file path")) << what;
}

TEST_F(AtomicFileTest, FailedRenameRemovesTheTemporaryAndSaysWhy) {
  AtomicFile file(path("a"));
  file.write("new", 3);
  fs::create_directory(path("a"));  // appears after the check in the constructor
  const std::string what = io_error([&] { file.commit(); });
  EXPECT_TRUE(has(what, path("a"))) << what;
  EXPECT_TRUE(has(what, "Is a directory")) << what;
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(AtomicFileTest, RefusesUseAfterCommit) {
  AtomicFile file(path("a"));
  file.commit();
  EXPECT_TRUE(has(io_error([&] { file.write("x", 1); }), "already committed"));
  EXPECT_TRUE(has(io_error([&] { file.commit(); }), "already committed"));
  EXPECT_EQ(contents(path("a")), "");
}

// Stops writes at a file size, as a full disk does: the write that crosses it is cut short and the
// next one fails.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(AtomicFileTest, ShortWriteThatCannotContinueLosesNothing) {
  write_file_atomically(path("a"), "old");
  AtomicFile file(path("a"));
  std::string what;
  {
    const FileSizeLimit limit(4096);
    const std::string large(10000, 'x');
    what = io_error([&] { file.write(large.data(), large.size()); });
  }
  EXPECT_TRUE(has(what, path("a"))) << what;
  EXPECT_TRUE(has(what, "File too large")) << what;
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
  EXPECT_TRUE(has(io_error([&] { file.commit(); }), "earlier write failed"));
  EXPECT_EQ(contents(path("a")), "old");
}

}  // namespace
}  // namespace gallop::io
