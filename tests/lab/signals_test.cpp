// SPDX-License-Identifier: MIT
#include "lab/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "lab/adam_grid.h"
#include "lab/adamw_8bit.h"
#include "lab/adan_gpt2.h"
#include "lab/cs336.h"

namespace gallop::lab {
namespace {

size_t rows_of(const std::vector<Table>& tables) {
  size_t count = 0;
  for (const Table& t : tables) count += t.rows.size();
  return count;
}

TEST(Signals, AreForgottenAfterwards) {
  {
    const Signals signals;
    EXPECT_FALSE(Signals::asked());
    std::raise(SIGTERM);
    EXPECT_TRUE(Signals::asked());
  }
  const Signals again;
  EXPECT_FALSE(Signals::asked());
}

TEST(Signals, BeforeTheFirstRowASuiteHasNoneAndReadsNothingIntoThem) {
  const Signals signals;
  std::raise(SIGINT);
  EXPECT_EQ(rows_of({adam_grid({})}), 0U);
  EXPECT_EQ(rows_of({adan_gpt2({})}), 0U);
  EXPECT_EQ(rows_of(cs336({})), 0U);
  Adamw8bitOptions o;
  o.data = "synthetic";
  EXPECT_EQ(rows_of(adamw_8bit(o)), 0U);
}

TEST(Signals, ASweepEndsAfterTheRowAtHand) {
  const Signals signals;
  AdamGridOptions o;
  o.sizes = {16};
  o.tensors.resize(100000);
  std::iota(o.tensors.begin(), o.tensors.end(), 1);
  o.sampler.time_limit_s = 0.001;
  std::thread person([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(getpid(), SIGINT);
  });
  EXPECT_LT(rows_of({adam_grid(o)}), o.tensors.size());
  person.join();
}

}  // namespace
}  // namespace gallop::lab
