// SPDX-License-Identifier: MIT
#include "lab/adan_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gallop/error.h"
#include "lab/figures.h"

namespace gallop::lab {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr double kMb = 1 << 20;

Row peak(int64_t layers, double adam, double adan, double a100) {
  Row row;
  row.set("layers", layers).set("width", 8).set("adam_peak_mb", adam).set("adan_peak_mb", adan);
  row.set("delta_percent", 100 * (adan / adam - 1)).set("a100_adam_mb", a100);
  return row;
}

TEST(ReadPeaks, SaysWhatAdanAndHeadsAdd) {
  EXPECT_THAT(
      read_peaks({peak(1, 100, 150, 100), peak(1, 110, 160, 150), peak(2, 200, 250, 180)}),
      ElementsAre("Adan's peak is 25.0 to 50.0 % above Adam's: its larger state, there from the "
                  "start, is all of the difference",
                  "where heads alone differ, Adam's peak differs by up to 10 %, on the A100 by up "
                  "to 50 %"));
  EXPECT_THAT(read_peaks({}), IsEmpty());
}

TEST(AdanMemory, ClassesAddUpToThePeak) {
  for (const auto attention : {gpt::Attention::naive, gpt::Attention::fused}) {
    AdanMemoryOptions o;
    o.attention = attention;
    const auto tables = adan_memory(o);
    ASSERT_EQ(tables.size(), 2u);
    ASSERT_EQ(tables[0].rows.size(), 25u);
    ASSERT_EQ(tables[1].rows.size(), 25u);
    for (size_t i = 0; i < 25; ++i) {
      const Row &peaks = tables[0].rows[i], &classes = tables[1].rows[i];
      double shared = 0;
      for (const char* cls :
           {"parameters_mb", "gradients_mb", "activations_mb", "logits_mb", "workspace_mb"}) {
        shared += *number(classes, cls);
      }
      for (const std::string optimizer : {"adam", "adan"}) {
        EXPECT_NEAR(*number(peaks, optimizer + "_peak_mb"),
                    shared + *number(classes, optimizer + "_state_mb"), 1e-6);
        EXPECT_GE(*number(peaks, optimizer + "_allocated_mb"),
                  *number(peaks, optimizer + "_peak_mb"));
      }
      // Two states against four, in fp32.
      EXPECT_NEAR(*number(classes, "adan_state_mb") / *number(classes, "adam_state_mb"), 2, 1e-2);
    }
  }
}

TEST(AdanMemory, HasThePublishedFiguresBesideItsOwn) {
  const auto rows = adan_memory({})[0].rows;
  EXPECT_EQ(text(rows[0], "a100_adam_mb"), "4490");
  EXPECT_EQ(text(rows[19], "width"), "2560");
  EXPECT_EQ(text(rows[19], "a100_adam_mb"), "13967");
  EXPECT_EQ(text(rows[19], "a100_adan_mb"), "15965");
  EXPECT_EQ(text(rows[24], "a100_adan_mb"), "34363");
}

TEST(AdanMemory, HeadsMatterWhereScoresAreKept) {
  AdanMemoryOptions o;
  const auto growth = [&] {  // from 6 to 16 heads
    const auto rows = adan_memory(o)[0].rows;
    EXPECT_EQ(text(rows[0], "heads") + text(rows[2], "heads"), "616");
    return *number(rows[2], "adam_peak_mb") / *number(rows[0], "adam_peak_mb");
  };
  EXPECT_GT(growth(), 1.4);
  o.attention = gpt::Attention::fused;
  EXPECT_LT(growth(), 1.001);
}

TEST(AdanMemory, WhatDoesNotFitIsInTheRow) {
  AdanMemoryOptions o;
  const auto unknown = adan_memory(o)[0];
  EXPECT_EQ(unknown.rows[0].find("status"), nullptr);
  const double adam = *number(unknown.rows[0], "adam_allocated_mb"),
               adan = *number(unknown.rows[0], "adan_allocated_mb");
  const auto first = [&](double mb) {
    o.memory_bytes = static_cast<int64_t>(mb * kMb);
    return adan_memory(o)[0].rows[0];
  };
  EXPECT_EQ(text(first(adan), "status"), "ok");
  EXPECT_EQ(first(adan).find("missing_mb"), nullptr);
  EXPECT_EQ(text(first(adan - 1), "status"), "adan oom");
  EXPECT_NEAR(*number(first(adan - 1), "missing_mb"), 1, 1e-5);
  EXPECT_EQ(text(first(adam - 1), "status"), "oom");
  EXPECT_NEAR(*number(first(adam - 1), "missing_mb"), adan - adam + 1, 1e-5);
  EXPECT_THAT(adan_memory(o)[0].columns, Contains("missing_mb"));
  o.memory_bytes = int64_t{1} << 50;
  EXPECT_THAT(adan_memory(o)[0].columns, Not(Contains("missing_mb")));
}

TEST(AdanMemory, GrowsWithTheBatch) {
  AdanMemoryOptions two;
  two.batch = 2;
  const auto one = adan_memory({}), more = adan_memory(two);
  EXPECT_GT(*number(more[1].rows[0], "activations_mb"), *number(one[1].rows[0], "activations_mb"));
  EXPECT_THAT(more[0].title, HasSubstr("batch 2"));
  two.batch = 0;
  try {
    adan_memory(two);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "a batch of 0 sequences, expected at least 1");
  }
}

}  // namespace
}  // namespace gallop::lab
