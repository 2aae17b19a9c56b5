// SPDX-License-Identifier: MIT
#include "cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "gallop/error.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GALLOP_TSAN
#endif
#endif

namespace gallop::cpu {
namespace {

// Counts how often each index is run.
struct Tally {
  std::array<std::atomic<int>, 16> runs{};
  std::atomic<int> wrong_count{0};

  bool each_ran_once(int count) const {
    bool ok = wrong_count == 0;
    for (int i = 0; i < 16; ++i) ok = ok && runs[static_cast<size_t>(i)] == (i < count ? 1 : 0);
    return ok;
  }
};

bool runs_each_index_once(int count) {
  Tally tally;
  auto task = [&](int i, int n) {
    if (n != count || i < 0 || i >= 16) {
      ++tally.wrong_count;
    } else {
      ++tally.runs[static_cast<size_t>(i)];
    }
  };
  ThreadPool::instance().run(count, task);
  return tally.each_ran_once(count);
}

TEST(ThreadPool, RunsEveryIndexOnce) {
  for (int round = 0; round < 200; ++round) {
    for (int count = 1; count <= 9; ++count) {
      ASSERT_TRUE(runs_each_index_once(count)) << count << " in round " << round;
    }
  }
}

TEST(ThreadPool, RunsNothingForACountOfZero) { EXPECT_TRUE(runs_each_index_once(0)); }

TEST(ThreadPool, ReturnsOnlyWhenAllHaveFinished) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> finished{0};
    auto task = [&](int i, int) {
      if (i != 0) std::this_thread::sleep_for(std::chrono::milliseconds(i));
      ++finished;
    };
    ThreadPool::instance().run(4, task);
    ASSERT_EQ(finished, 4);
  }
}

TEST(ThreadPool, GivesEachIndexAThreadOfItsOwn) {
  // All must have arrived before any goes on: impossible on fewer threads.
  std::atomic<int> arrived{0};
  std::array<std::thread::id, 4> ids;
  auto task = [&](int i, int count) {
    ids[static_cast<size_t>(i)] = std::this_thread::get_id();
    ++arrived;
    while (arrived < count) std::this_thread::yield();
  };
  ThreadPool::instance().run(4, task);
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), 4u);
  EXPECT_EQ(ids[0], std::this_thread::get_id());
}

TEST(ThreadPool, WakesAfterItHasGoneToSleep) {
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_TRUE(runs_each_index_once(4));
  }
}

TEST(ThreadPool, MakesWhatWorkersWroteVisible) {
  for (int round = 0; round < 2000; ++round) {
    std::array<int, 4> plain{};
    auto task = [&](int i, int) { plain[static_cast<size_t>(i)] = round + i; };
    ThreadPool::instance().run(4, task);
    for (int i = 0; i < 4; ++i) ASSERT_EQ(plain[static_cast<size_t>(i)], round + i);
  }
}

TEST(ThreadPool, NestedUseRunsEveryInnerIndex) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> good{0};
    auto outer = [&](int, int) { good += runs_each_index_once(3); };
    ThreadPool::instance().run(4, outer);
    ASSERT_EQ(good, 4);
  }
}

TEST(ThreadPool, UseFromSeveralThreadsAtOnceRunsEveryIndexOfEach) {
  std::atomic<int> good{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&, c] {
      for (int round = 0; round < 500; ++round) good += runs_each_index_once(2 + (c + round) % 4);
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(good, 4 * 500);
}

TEST(ThreadPool, AForkedChildRunsEveryIndex) {
#if defined(GALLOP_TSAN) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer does not follow a fork";
#endif
  ASSERT_TRUE(runs_each_index_once(4));  // the parent's workers exist
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);  // waiting for the parent's workers would be for ever
    _exit(runs_each_index_once(4) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(runs_each_index_once(4));
}

// ---- how many threads ----

class DefaultThreads : public testing::Test {
 protected:
  DefaultThreads() {
    for (const char* name : {"GALLOP_NUM_THREADS", "OMP_NUM_THREADS"}) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
    }
  }
  ~DefaultThreads() override {
    for (const char* name : {"GALLOP_NUM_THREADS", "OMP_NUM_THREADS"}) {
      before_.contains(name) ? setenv(name, before_[name].c_str(), 1) : unsetenv(name);
    }
  }
  static std::string refusal(const char* name, const char* value) {
    setenv(name, value, 1);
    try {
      default_threads();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

 private:
  std::map<std::string, std::string> before_;
};

TEST_F(DefaultThreads, IsTheNumberOfCpusWeMayUse) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_EQ(default_threads(), CPU_COUNT(&set));
}

TEST_F(DefaultThreads, IsWhatGallopNumThreadsSays) {
  setenv("GALLOP_NUM_THREADS", "3", 1);
  EXPECT_EQ(default_threads(), 3);
}

TEST_F(DefaultThreads, IsTheFirstNumberOfOmpNumThreads) {
  setenv("OMP_NUM_THREADS", "4,2", 1);
  EXPECT_EQ(default_threads(), 4);
  setenv("OMP_NUM_THREADS", "7", 1);
  EXPECT_EQ(default_threads(), 7);
}

TEST_F(DefaultThreads, GallopNumThreadsGoesBeforeOmpNumThreads) {
  setenv("OMP_NUM_THREADS", "7", 1);
  setenv("GALLOP_NUM_THREADS", "3", 1);
  EXPECT_EQ(default_threads(), 3);
}

TEST_F(DefaultThreads, AnEmptyVariableIsAsGoodAsNone) {
  setenv("GALLOP_NUM_THREADS", "", 1);
  setenv("OMP_NUM_THREADS", "5", 1);
  EXPECT_EQ(default_threads(), 5);
}

TEST_F(DefaultThreads, AnythingElseIsRefusedByNameAndValue) {
  for (const char* name : {"OMP_NUM_THREADS", "GALLOP_NUM_THREADS"}) {
    for (const char* value : {"abc", "0", "-1", "4x", "1.5", "99999999999", ",4"}) {
      const std::string why = refusal(name, value);
      EXPECT_NE(why.find(std::string(name) + "=" + value), std::string::npos) << value << why;
    }
    unsetenv(name);
  }
}

}  // namespace
}  // namespace gallop::cpu
