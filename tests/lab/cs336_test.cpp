// SPDX-License-Identifier: MIT
#include "lab/cs336.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/figures.h"

namespace gallop::lab {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Row timed(const char* precision, const char* mode, const char* optimizer, double total,
          double std = 0, int64_t warmup = 5) {
  Row row;
  row.set("model", "S").set("context", 128).set("batch", 4).set("precision", precision);
  row.set("mode", mode).set("optimizer", optimizer).set("warmup", warmup);
  row.set("forward_ms", 0.25 * total).set("backward_ms", 0.5 * total);
  row.set("optimizer_ms", 0.25 * total).set("total_ms", total).set("total_std_ms", std);
  row.set("steps", 4).set("status", "ok");
  return row;
}

TEST(ReadTimes, SaysWhatIsFasterAndByHowMuch) {
  const auto notes =
      read_times({timed("fp32", "eager", "adamw", 8), timed("bf16", "eager", "adamw", 4),
                  timed("fp32", "compiled", "adamw", 4), timed("bf16", "compiled", "adamw", 4)});
  EXPECT_THAT(notes,
              Contains("bf16 is 1.00x to 2.00x as fast as fp32, 1.41x in the geometric mean; "
                       "beyond the noise faster in 1 and slower in 0 of 2 pairs"));
  EXPECT_THAT(notes, Contains(HasSubstr("compiled is 1.00x to 2.00x as fast as eager")));
  EXPECT_THAT(notes, Contains("adamw takes 25.0 % of a step's time"));
  EXPECT_THAT(notes, Contains("backward takes 2.00 times as long as forward"));
}

TEST(ReadTimes, NoiseIsNoDifference) {
  const auto notes =
      read_times({timed("fp32", "eager", "none", 8, 4), timed("bf16", "eager", "none", 7, 4)});
  EXPECT_THAT(notes, Contains(HasSubstr("faster in 0 and slower in 0 of 1 pairs")));
}

TEST(ReadTimes, ClaimsNothingOfWhatDidNotRun) {
  Row failed = timed("bf16", "eager", "none", 1);
  failed.set("status", "oom");
  EXPECT_THAT(read_times({timed("fp32", "eager", "none", 8), failed}),
              Not(Contains(HasSubstr("bf16"))));
  EXPECT_THAT(read_times({}), IsEmpty());
}

TEST(ReadWarmup, ComparesWithTheLongest) {
  const auto notes = read_warmup({timed("fp32", "eager", "none", 12, 8, 0),
                                  timed("fp32", "eager", "none", 8, 0.5, 10),
                                  timed("fp32", "eager", "none", 8, 1, 2)});
  EXPECT_THAT(
      notes,
      ElementsAre("S: no instead of 10 steps of warm-up change the mean of a step by +50.0 % "
                  "(noise: 67.0 %), its standard deviation from 0.5 to 8 ms",
                  "S: 2 instead of 10 steps of warm-up change the mean of a step by +0.0 % "
                  "(noise: 14.0 %), its standard deviation from 0.5 to 1 ms"));
}

Cs336Options tiny() {
  Cs336Options o;
  o.axes.models = {"nano:layers=1:width=32:heads=2:context=16"};
  o.axes.contexts = {8, 16, 32};
  o.axes.batches = {2};
  o.axes.precisions = {"fp32"};
  o.axes.threads = 2;
  o.axes.warmups = {1};
  o.timing.steps = 2;
  o.warmups = {0, 1};
  o.memory_contexts = {8, 16};
  return o;
}

TEST(Cs336, HasItsThreeTables) {
  const auto tables = cs336(tiny());
  ASSERT_EQ(tables.size(), 3u);
  EXPECT_EQ(tables[0].rows.size(), 8u);  // two contexts, two modes, with and without an optimizer
  EXPECT_EQ(tables[1].rows.size(), 2u);
  EXPECT_EQ(tables[2].rows.size(), 8u);
  for (const Table& t : tables) {
    EXPECT_FALSE(t.title.empty());
    for (const Row& row : t.rows) EXPECT_EQ(text(row, "status"), "ok") << text(row, "message");
  }
  EXPECT_EQ(text(tables[1].rows[0], "context"), "16");
  EXPECT_EQ(tables[2].rows[0].find("total_ms"), nullptr);
  EXPECT_THAT(tables[2].notes, Contains(HasSubstr("adamw adds ")));
  EXPECT_THAT(tables[2].notes, Contains(HasSubstr("when the context doubles")));
  EXPECT_THAT(tables[1].notes, Contains(HasSubstr("no instead of 1 steps of warm-up")));
  const Table all = joined(tables);
  EXPECT_EQ(all.rows.size(), 18u);
  EXPECT_EQ(text(all.rows.back(), "part"), "memory");
}

TEST(Cs336, AModelWithLessContextHasItsOwn) {
  Cs336Options o = tiny();
  o.axes.contexts = {64, 128};
  o.axes.modes = {"compiled"};
  o.warmups = {};
  o.memory_contexts = {};
  const auto tables = cs336(o);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(text(tables[0].rows[0], "context"), "16");
}

TEST(Cs336, DefaultsAreTheAssignments) {
  const Cs336Options o;
  EXPECT_THAT(o.axes.models, ElementsAre("S", "M", "L", "XL", "2p7"));
  EXPECT_THAT(o.axes.contexts, ElementsAre(128, 256, 512, 1024));
  EXPECT_THAT(o.axes.batches, ElementsAre(4));
}

}  // namespace
}  // namespace gallop::lab
