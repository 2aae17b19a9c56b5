// SPDX-License-Identifier: MIT
// A forked process has none of its parent's threads, and steps all the same.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "optimizer/fixture.h"

#if defined(__SANITIZE_ADDRESS__)
#define GALLOP_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define GALLOP_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GALLOP_TSAN 1
#endif
#endif

namespace gallop::test {
namespace {

Plan plan_with_threads() {
  Plan plan{plain("adamw")};
  plan.options.threads = 2;
  plan.options.clip_norm = 1;
  plan.sizes = {{257}, {30011}};
  return plan;
}

std::string bytes_of(const Snapshot& s) {
  std::string out;
  for (const auto& [name, bytes] : s.parts) {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return out;
}

void step(World& w) {
  w.fill_grads(9);
  w.optimizer.step();
}

// What the world's snapshot is in a child after a step there.
std::string stepped_in_child(World& w) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // rather than hang
    step(w);
    const std::string out = bytes_of(w.snapshot());
    for (size_t done = 0; done < out.size();) {
      const ssize_t n = write(ends[1], out.data() + done, out.size() - done);
      if (n <= 0) _exit(1);
      done += static_cast<size_t>(n);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string in;
  char buffer[65536];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    in.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return in;
}

class Fork : public testing::Test {
 protected:
  void SetUp() override {
#ifdef GALLOP_TSAN
    GTEST_SKIP() << "tsan does not support threads after fork";
#endif
  }
};

TEST_F(Fork, ChildStepsToTheSameBits) {
  World w(plan_with_threads());
  for (int k = 0; k < 2; ++k) step(w);
  const std::string before = bytes_of(w.snapshot());
  const std::string child = stepped_in_child(w), second = stepped_in_child(w);
  EXPECT_EQ(bytes_of(w.snapshot()), before);
  step(w);
  EXPECT_TRUE(child == bytes_of(w.snapshot()));
  EXPECT_TRUE(second == child);
}

TEST_F(Fork, ChildStepsWhileAnotherThreadOfItsParentWasStepping) {
#ifdef GALLOP_ASAN
  GTEST_SKIP()
      << "asan's allocator does not take its locks around fork: a child can find them held";
#endif
  World w(plan_with_threads()), busy(plan_with_threads());
  step(w);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) busy.optimizer.step();
  });
  std::vector<std::string> children;
  for (int k = 0; k < 10 && !HasFailure(); ++k) children.push_back(stepped_in_child(w));
  stop = true;
  other.join();
  step(w);
  const std::string expected = bytes_of(w.snapshot());
  for (const std::string& child : children) EXPECT_TRUE(child == expected);
}

}  // namespace
}  // namespace gallop::test
