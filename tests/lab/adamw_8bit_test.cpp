// SPDX-License-Identifier: MIT
#include "lab/adamw_8bit.h"

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

Row differs(double percent, double noise_percent) {
  Row row;
  row.set("8bit_difference_percent", percent).set("8bit_noise_percent", noise_percent);
  return row;
}

TEST(ReadThroughput, CountsWhatIsBeyondTheNoise) {
  EXPECT_THAT(
      read_throughput({differs(-7.5, 1), differs(-0.5, 1), differs(2, 1), Row()}, {"fp32", "8bit"}),
      ElementsAre(
          "8bit state against fp32: -7.5 to +2.0 % tokens a second; beyond the noise slower "
          "in 1 and faster in 1 of 3 rows"));
  EXPECT_THAT(read_throughput({}, {"fp32", "8bit"}), IsEmpty());
}

Row ended(double difference, int64_t runs, double spread) {
  Row row;
  row.set("model", "char").set("state", "8bit").set("train_steps", 100).set("runs", runs);
  row.set("loss_difference", difference);
  if (runs > 1) row.set("validation_std", spread);
  return row;
}

TEST(ReadLoss, JudgesBySeeds) {
  EXPECT_THAT(read_loss({ended(0.01, 1, 0)}, "fp32"),
              ElementsAre("char after 100 steps: validation loss with 8bit state is +0.0100 of "
                          "fp32's, one run cannot tell that from chance"));
  EXPECT_THAT(read_loss({ended(0.01, 4, 0.02)}, "fp32"), Contains(HasSubstr("within what seeds")));
  EXPECT_THAT(read_loss({ended(0.03, 4, 0.02)}, "fp32"),
              Contains(HasSubstr("more than what seeds")));
}

Adamw8bitOptions tiny() {
  Adamw8bitOptions o;
  o.models = {"nano:layers=1:width=64:heads=2:context=16"};
  o.batches = {1, 2};
  o.steps = 3;
  o.warmup = 1;
  o.train_steps = 10;
  o.train_batch = 2;
  o.threads = 2;
  o.data = "synthetic:tokens=100000,validation=10000";
  return o;
}

std::string refusal(const Adamw8bitOptions& o) {
  try {
    adamw_8bit(o);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Adamw8bit, HasThroughputMemoryAndLoss) {
  const auto tables = adamw_8bit(tiny());
  ASSERT_EQ(tables.size(), 3u);
  ASSERT_EQ(tables[0].rows.size(), 2u);
  for (const Row& row : tables[0].rows) {
    EXPECT_EQ(text(row, "status"), "ok") << text(row, "message");
    for (const char* state : {"fp32", "8bit", "hybrid"}) {
      EXPECT_GT(*number(row, std::string(state) + "_tokens_per_s"), 0);
    }
    EXPECT_EQ(row.find("fp32_difference_percent"), nullptr);
    EXPECT_NE(row.find("hybrid_difference_percent"), nullptr);
  }
  ASSERT_EQ(tables[1].rows.size(), 3u);
  EXPECT_NEAR(*number(tables[1].rows[0], "bytes_per_parameter"), 8, 0.5);
  EXPECT_EQ(*number(tables[1].rows[0], "saved_percent"), 0);
  EXPECT_GT(*number(tables[1].rows[1], "saved_percent"),
            *number(tables[1].rows[2], "saved_percent"));
  ASSERT_EQ(tables[2].rows.size(), 3u);
  for (const Row& row : tables[2].rows) {
    EXPECT_EQ(text(row, "status"), "ok") << text(row, "message");
    EXPECT_LT(*number(row, "train_loss"), *number(row, "first_loss"));
    EXPECT_GT(*number(row, "validation_loss"), *number(row, "lowest_loss"));
    EXPECT_EQ(*number(row, "first_loss"), *number(tables[2].rows[0], "first_loss"));
  }
  EXPECT_NEAR(*number(tables[2].rows[1], "loss_difference"), 0, 0.05);
}

TEST(Adamw8bit, OneRunForEachSeedAndNoneWithoutSteps) {
  Adamw8bitOptions o = tiny();
  o.batches = {1};
  o.states = {"fp32", "8bit"};
  o.runs = 2;
  const auto tables = adamw_8bit(o);
  EXPECT_GT(*number(tables[2].rows[0], "validation_std"), 0);
  EXPECT_THAT(tables[2].columns, Contains("validation_std"));
  o.train_steps = 0;
  EXPECT_EQ(adamw_8bit(o).size(), 2u);
}

TEST(Adamw8bit, WhatDoesNotRunIsInTheRow) {
  Adamw8bitOptions o = tiny();
  o.precision = "fp16";
  const auto tables = adamw_8bit(o);
  EXPECT_EQ(text(tables[0].rows[0], "status"), "unsupported");
  EXPECT_EQ(text(tables.back().rows[0], "status"), "unsupported");
  EXPECT_THAT(tables[0].notes, Contains(HasSubstr("batch 1: unsupported: training in fp16")));
}

TEST(Adamw8bit, BadOptionsAreOneSentence) {
  Adamw8bitOptions o = tiny();
  o.models = {"nano:vocabulary=100"};
  EXPECT_EQ(refusal(o),
            "nano:vocabulary=100 has a vocabulary of 100, expected at least the data's 256");
  o = tiny();
  o.optimizer = "none";
  EXPECT_EQ(refusal(o), "optimizer none has no state, expected a rule that has");
  o = tiny();
  o.states = {};
  EXPECT_EQ(refusal(o), "1 models, 2 batch sizes and 0 states, expected at least one of each");
  o = tiny();
  o.data = "/no/such/file";
  EXPECT_THAT(refusal(o), HasSubstr("/no/such/file"));
}

}  // namespace
}  // namespace gallop::lab
