// SPDX-License-Identifier: MIT
#include "bench/train_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "folder.h"
#include "gallop/error.h"
#include "lab/figures.h"

namespace gallop::bench {
namespace {

using lab::number;
using lab::Row;
using lab::Table;
using lab::text;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kTiny = "nano:layers=1:width=32:heads=2:context=16";

TrainAxes tiny() {
  TrainAxes a;
  a.models = {kTiny};
  a.batches = {2};
  a.warmups = {1};
  a.threads = 2;
  return a;
}

TrainTiming steps(int64_t n) { return {n, 0}; }

std::string refusal(const TrainAxes& axes, const std::string& profile = "") {
  try {
    train_bench(axes, steps(1), TrainColumns::time, profile);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(TrainCases, AreTheFullProduct) {
  TrainAxes a = tiny();
  a.contexts = {8, 16};
  a.batches = {1, 2};
  a.modes = {"eager", "compiled"};
  a.optimizers = {"adamw", "lion"};
  a.states = {"fp32", "8bit"};
  a.attentions = {"naive", "fused"};
  a.recomputations = {"no", "yes"};
  a.accumulations = {1, 2};
  a.warmups = {0, 5};
  const auto cases = train_cases(a);
  EXPECT_EQ(cases.size(), 512u);
  EXPECT_EQ(cases.front().options.time, 8);
  EXPECT_FALSE(cases.front().options.compiled);
  EXPECT_EQ(cases.back().state, "8bit");
  EXPECT_EQ(cases.back().warmup, 5);
  EXPECT_TRUE(cases.back().options.checkpoints);
}

TEST(TrainCases, WhatMakesNoDifferenceIsNotRepeated) {
  TrainAxes a = tiny();
  a.optimizers = {"none", "adamw"};
  a.states = {"fp32", "8bit"};
  a.roundings = {"master", "nearest"};
  EXPECT_EQ(train_cases(a).size(), 3u);  // fp32 has nothing to round
  a.precisions = {"bf16"};
  EXPECT_EQ(train_cases(a).size(), 3u);  // nor has a CPU's bf16
  a.device = {Device::Kind::cuda, 0};
  EXPECT_EQ(train_cases(a).size(), 5u);
}

TEST(TrainCases, TakeTheModelsContextWhereNoneIsGiven) {
  EXPECT_EQ(train_cases(tiny()).front().options.time, 16);
}

TEST(TrainCases, NamesThatNothingHasAreRefusedInOneSentence) {
  const auto with = [](auto change) {
    TrainAxes a = tiny();
    change(a);
    return refusal(a);
  };
  EXPECT_THAT(with([](TrainAxes& a) { a.models = {"nono"}; }), HasSubstr("'nono', expected"));
  EXPECT_EQ(with([](TrainAxes& a) { a.modes = {"eagre"}; }),
            "mode 'eagre', expected compiled or eager");
  EXPECT_EQ(with([](TrainAxes& a) { a.attentions = {"flash"}; }),
            "attention 'flash', expected fused or naive");
  EXPECT_EQ(with([](TrainAxes& a) { a.recomputations = {"maybe"}; }),
            "recomputation 'maybe', expected yes or no");
  EXPECT_THAT(with([](TrainAxes& a) { a.precisions = {"fp8"}; }), HasSubstr("precision 'fp8'"));
  EXPECT_THAT(with([](TrainAxes& a) { a.optimizers = {"zz"}; }), HasSubstr("'zz' is unknown"));
  EXPECT_THAT(with([](TrainAxes& a) { a.states = {"9bit"}; }), HasSubstr("'9bit' is unknown"));
  EXPECT_THAT(with([](TrainAxes& a) { a.roundings = {"up"}; }), HasSubstr("'up'"));
  EXPECT_EQ(with([](TrainAxes& a) { a.batches = {}; }),
            "no batch to run with, expected at least one");
}

TEST(TrainBench, PhasesAreThereAndAddUp) {
  TrainAxes a = tiny();
  a.optimizers = {"none", "adamw"};
  a.modes = {"eager", "compiled"};
  a.warmups = {0, 2};
  const Table table = train_bench(a, steps(3));
  ASSERT_EQ(table.rows.size(), 8u);
  for (const Row& row : table.rows) {
    EXPECT_EQ(text(row, "status"), "ok") << text(row, "message");
    double sum = 0;
    for (const char* phase : {"forward", "backward", "optimizer"}) {
      for (const char* figure : {"_ms", "_std_ms", "_median_ms"}) {
        EXPECT_GE(*number(row, std::string(phase) + figure), 0);
      }
      sum += *number(row, std::string(phase) + "_ms");
    }
    EXPECT_GT(*number(row, "backward_ms"), 0);
    EXPECT_NEAR(sum, *number(row, "total_ms"), 1e-9 * sum);
    EXPECT_EQ(*number(row, "optimizer_ms") == 0, text(row, "optimizer") == "none");
    EXPECT_EQ(*number(row, "steps"), 3);
    EXPECT_GT(*number(row, "first_step_s"), 0);
    EXPECT_GE(*number(row, "wall_ms"), *number(row, "total_ms"));
    const double median = *number(row, "total_median_ms");
    EXPECT_NEAR(*number(row, "tokens_per_s"), 32e3 / median, 1e-6 * 32e3 / median);
    EXPECT_GT(*number(row, "mfu_percent"), 0);
  }
}

TEST(TrainBench, MemoryIsByClassAndAddsUp) {
  TrainAxes a = tiny();
  a.optimizers = {"none", "adamw"};
  const Table table = train_bench(a, steps(1), TrainColumns::memory);
  for (const Row& row : table.rows) {
    double sum = 0;
    for (int c = 0; c < gpt::kMemoryClasses; ++c) {
      const auto name = gpt::to_string(static_cast<gpt::MemoryClass>(c));
      sum += *number(row, std::string(name) + "_mb");
    }
    EXPECT_NEAR(sum, *number(row, "peak_mb"), 1e-9 * sum);
    EXPECT_GT(*number(row, "activations_mb"), 0);
  }
  EXPECT_EQ(*number(table.rows[0], "state_mb"), 0);
  EXPECT_GT(*number(table.rows[1], "state_mb"), *number(table.rows[1], "parameters_mb"));
  EXPECT_THAT(table.columns, Contains("state_mb"));
  EXPECT_THAT(table.columns, Not(Contains("forward_ms")));
}

TEST(TrainBench, ASweepGoesOnWhereMemoryOrSupportEnd) {
  TrainAxes a = tiny();
  a.batches = {int64_t{1} << 38, 2};
  a.precisions = {"fp16", "fp32"};
  const Table table = train_bench(a, steps(1));
  std::vector<std::string> statuses;
  for (const Row& row : table.rows) {
    statuses.push_back(text(row, "status"));
    EXPECT_EQ(row.find("total_ms") != nullptr, statuses.back() == "ok");
    EXPECT_EQ(text(row, "message").empty(), statuses.back() == "ok");
  }
  EXPECT_THAT(statuses, ElementsAre("unsupported", "oom", "unsupported", "ok"));
  EXPECT_THAT(table.notes, Contains(HasSubstr("unsupported (2 rows): training in fp16")));
  EXPECT_THAT(table.notes, Contains(HasSubstr("oom: ")));
}

TEST(TrainBench, AModelBeyondTheMachineIsRefusedBeforeItIsTouched) {
  TrainAxes a = tiny();
  a.models = {"10B:layers=5000"};
  a.contexts = {1};
  const Table table = train_bench(a, steps(1));
  EXPECT_EQ(text(table.rows[0], "status"), "oom");
  EXPECT_THAT(text(table.rows[0], "message"), HasSubstr("MB, expected at most the machine's"));
}

TEST(TrainBench, AContextBeyondTheModelsIsThatRowsError) {
  TrainAxes a = tiny();
  a.contexts = {16, 17};
  const Table table = train_bench(a, steps(1));
  EXPECT_EQ(text(table.rows[0], "status"), "ok");
  EXPECT_EQ(text(table.rows[1], "status"), "error");
  EXPECT_THAT(text(table.rows[1], "message"), HasSubstr("at most the model's context of 16"));
}

TEST(TrainBench, StopsAtTheTimeLimit) {
  const Table table = train_bench(tiny(), {1000000, 0.02});
  EXPECT_GE(*number(table.rows[0], "steps"), 1);
  EXPECT_LT(*number(table.rows[0], "steps"), 1000000);
}

TEST(TrainBench, SideBySideGivesARowForEachInOrder) {
  TrainAxes a = tiny();
  a.states = {"fp32", "8bit", "hybrid"};
  TrainBench bench(steps(2));
  const auto rows = bench.run_together(train_cases(a));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(text(rows[2], "state"), "hybrid");
  for (const Row& row : rows) EXPECT_EQ(text(row, "status"), "ok");
  // The same batches and parameters: only the state's rounding differs.
  EXPECT_NEAR(*number(rows[0], "loss"), *number(rows[1], "loss"), 1e-2);
}

TEST(TrainBench, SideBySideFallsBackToOneAfterTheOther) {
  TrainAxes a = tiny();
  a.batches = {2, int64_t{1} << 38};
  TrainBench bench(steps(1));
  const auto rows = bench.run_together(train_cases(a));
  EXPECT_EQ(text(rows[0], "status"), "ok");
  EXPECT_EQ(text(rows[1], "status"), "oom");
}

TEST(TrainBench, ColumnsAreWhatVaries) {
  TrainAxes a = tiny();
  a.optimizers = {"none", "adamw"};
  const Table table = train_bench(a, steps(1));
  EXPECT_THAT(table.columns, Contains("optimizer"));
  EXPECT_THAT(table.columns, Not(Contains("state")));
  EXPECT_THAT(table.columns, Not(Contains("precision")));
  EXPECT_THAT(table.title, HasSubstr("batch 2, fp32, compiled, fp32 state, fused attention"));
  EXPECT_THAT(table.notes, Contains(HasSubstr("largest error of a gradient: fp32")));
  EXPECT_THAT(table.notes, Not(Contains(HasSubstr("the first step is in the figures"))));
  a.warmups = {0};
  EXPECT_THAT(train_bench(a, steps(1)).notes,
              Contains(HasSubstr("the first step is in the figures")));
}

TEST(TrainBench, ProfilesMemoryOfOneConfiguration) {
  const test::Folder folder;
  TrainAxes a = tiny();
  const Table table = train_bench(a, steps(1), TrainColumns::time, folder / "memory.json");
  std::ifstream file(folder / "memory.json");
  const auto trace = nlohmann::json::parse(file);
  EXPECT_NEAR(trace.at("otherData").at("peak_bytes").get<double>() / (1 << 20),
              *number(table.rows[0], "peak_mb"), 1e-9);
  EXPECT_THAT(table.notes, Contains(HasSubstr("activations at the peak, layer 0: ")));
  a.batches = {1, 2};
  EXPECT_EQ(refusal(a, folder / "other.json"),
            "a memory profile of 2 configurations, expected one");
}

TEST(TrainColumns, Parsed) {
  EXPECT_EQ(parse_train_columns("all"), TrainColumns::all);
  EXPECT_THROW(parse_train_columns("some"), Error);
}

TEST(TrainCheck, SmallModelsKeepTheKind) {
  const gpt::Config big = gpt::parse_model("2p7"), small = small_like(big);
  EXPECT_EQ(small.head_width(), big.head_width());
  EXPECT_EQ(small.norm, big.norm);
  EXPECT_EQ(small.activation, big.activation);
  EXPECT_EQ(small.positions, big.positions);
  EXPECT_EQ(small.tied, big.tied);
  EXPECT_EQ(small.hidden, 4 * small.width);
  EXPECT_EQ(small.layers, 2);
  EXPECT_EQ(small_like(gpt::parse_model("nano:width=32:heads=8")).width, 64);
}

TEST(TrainCheck, Fp32AgreesWithFp64InEveryKind) {
  for (const char* model : {"nano", "S:width=48:heads=4", "nano:biases=no:tied=no"}) {
    for (const bool other : {false, true}) {
      gpt::TrainerOptions o;
      o.config = gpt::parse_model(model);
      o.threads = 2;
      o.compiled = o.checkpoints = other;
      o.attention = other ? gpt::Attention::naive : gpt::Attention::fused;
      o.accumulation = other ? 4 : 1;
      o.logits_bytes = other ? 1 : o.logits_bytes;
      const Agreement a = compare_with_fp64(o);
      EXPECT_LT(a.gradient_error, 1e-5) << model << other << a.worst;
      EXPECT_GT(a.gradient_error, 1e-8);  // it was not compared with itself
      EXPECT_LT(a.loss_error, 1e-6) << model;
    }
  }
}

TEST(TrainCheck, WhatDisagreesIsNotTimed) {
  const auto verdict = [](const Agreement& a, gpt::Compute compute) -> std::string {
    try {
      require_agreement(a, compute);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  const Agreement a{1e-3, 5e-2, "wte.weight"};
  EXPECT_EQ(verdict(a, gpt::Compute::bf16), "accepted");
  EXPECT_EQ(verdict(a, gpt::Compute::tf32),
            "the gradient of wte.weight in tf32 is 0.05 off fp64's in a small model of the same "
            "kind, expected at most 0.02: it is not timed");
  EXPECT_THAT(verdict(a, gpt::Compute::fp32), HasSubstr("the loss in fp32 is 0.001 off"));
  EXPECT_NE(verdict({0, NAN, "x"}, gpt::Compute::bf16), "accepted");
  EXPECT_NE(verdict({NAN, 0, ""}, gpt::Compute::bf16), "accepted");
}

TEST(TrainCheck, BatchesAreTheSameForTheSameSeed) {
  const data::Batch a = random_batch(97, 2, 33, 5), b = random_batch(97, 2, 33, 5);
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.order, b.order);
  EXPECT_NE(a.inputs, random_batch(97, 2, 33, 6).inputs);
  EXPECT_GT(std::set<int32_t>(a.inputs.begin(), a.inputs.end()).size(), 30u);
}

}  // namespace
}  // namespace gallop::bench
