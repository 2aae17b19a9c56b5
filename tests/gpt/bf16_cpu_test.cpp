// SPDX-License-Identifier: MIT
// Training on a CPU that multiplies bf16.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "gallop/error.h"
#include "gpt/tiny_run.h"

namespace gallop::gpt {
namespace {

TrainerOptions options(Compute compute) {
  TrainerOptions o = tiny_trainer();
  o.device = {};
  o.compute = compute;
  return o;
}

std::vector<double> losses(Trainer& trainer, const RunOptions& o) {
  std::vector<double> all;
  RunCallbacks c;
  c.step = [&](const StepReport& r) { all.push_back(r.loss); };
  run(trainer, tiny_corpus(), o, c);
  return all;
}

class Bf16OnCpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu_has_bf16()) GTEST_SKIP() << "NOT RUN: this CPU has no AVX512-BF16";
  }
};

TEST_F(Bf16OnCpu, FollowsFp32WithOtherBits) {
  Trainer narrow(options(Compute::bf16)), wide(options(Compute::fp32));
  RunOptions o;
  o.steps = 60;
  const std::vector<double> in_bf16 = losses(narrow, o), in_fp32 = losses(wide, o);
  EXPECT_NE(in_bf16, in_fp32);
  for (size_t i = 0; i < in_fp32.size(); ++i) EXPECT_NEAR(in_bf16[i], in_fp32[i], 2e-2) << i;
  EXPECT_LT(in_bf16.back(), in_bf16.front() - 0.3) << "it does not learn";
}

TEST_F(Bf16OnCpu, KeepsEverythingInFp32) {
  Trainer narrow(options(Compute::bf16)), wide(options(Compute::fp32));
  for (int c = 0; c < kMemoryClasses; ++c) EXPECT_EQ(narrow.memory().of[c], wide.memory().of[c]);
  EXPECT_EQ(narrow.optimizer()->low_bits(0), nullptr);
}

TEST_F(Bf16OnCpu, GivesTheSameBitsWithMoreThreadsAndWhenResumed) {
  const test::Folder folder;
  RunOptions o;
  o.steps = 6;
  Trainer whole(options(Compute::bf16));
  losses(whole, o);
  TrainerOptions more = options(Compute::bf16);
  more.threads = 3;
  o.checkpoint = folder / "run";
  o.steps = 4;
  {
    Trainer first(more);
    losses(first, o);
  }
  o.steps = 6;
  o.resume = true;
  Trainer second(more);
  losses(second, o);
  EXPECT_EQ(bits(second), bits(whole));
}

TEST(Bf16WithoutTheCpu, IsRefused) {
  const char* before = std::getenv("GALLOP_FORCE_ISA");
  const std::string kept = before == nullptr ? "" : before;
  setenv("GALLOP_FORCE_ISA", "baseline", 1);
  std::string why;
  try {
    Trainer trainer(options(Compute::bf16));
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported);
    why = e.what();
  }
  before == nullptr ? unsetenv("GALLOP_FORCE_ISA") : setenv("GALLOP_FORCE_ISA", kept.c_str(), 1);
  EXPECT_EQ(why, "training in bf16 on a CPU without AVX512-BF16, expected fp32 or fp64");
}

}  // namespace
}  // namespace gallop::gpt
