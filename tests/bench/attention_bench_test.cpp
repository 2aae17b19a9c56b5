// SPDX-License-Identifier: MIT
#include "bench/attention_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "cuda/memory.h"
#include "folder.h"
#include "lab/figures.h"
#include "lab/torch_attention.h"

namespace gallop::bench {
namespace {

using lab::number;
using lab::Row;
using lab::text;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr AttentionTiming kQuick{1, 3, 0.05};

AttentionAxes tiny() {
  AttentionAxes a;
  a.batches = {2};
  a.heads = {3};
  a.sequences = {17};
  a.widths = {8};
  a.place.threads = 2;
  return a;
}

Row one(const AttentionCase& c, const AttentionPlace& place = {{}, 2, true}) {
  return AttentionBench(place, kQuick, 1).run(c);
}

TEST(AttentionGrids, HaveTheirSizes) {
  for (const auto& [name, size] : {std::pair("seed", 20u), {"cs336", 20u}, {"flash", 80u}}) {
    AttentionAxes a = attention_grid(name);
    EXPECT_EQ(attention_cases(a).size(), 2 * size) << name;
    a.attentions = {"fused"};
    EXPECT_EQ(attention_cases(a).size(), size) << name;
  }
  const AttentionAxes seed = attention_grid("seed"), flash = attention_grid("flash");
  EXPECT_THAT(seed.sequences, ElementsAre(16, 32, 64, 128));
  EXPECT_THAT(seed.widths, ElementsAre(256, 1024, 4096, 8192, 16384));
  EXPECT_THAT(flash.batches, ElementsAre(1));
  EXPECT_EQ(flash.sequences.back(), 65536);
  EXPECT_THAT(flash.precisions, ElementsAre("bf16", "fp32"));
}

TEST(AttentionCases, AreTheFullProduct) {
  AttentionAxes a = tiny();
  a.batches = {1, 2};
  a.heads = {1, 3};
  a.sequences = {5, 6, 7};
  a.widths = {4, 8};
  a.precisions = {"fp32", "fp64"};
  const auto cases = attention_cases(a);
  EXPECT_EQ(cases.size(), 96u);
  std::set<std::string> distinct;
  for (const AttentionCase& c : cases) distinct.insert(describe(c));
  EXPECT_EQ(distinct.size(), 96u);
  EXPECT_EQ(describe(cases.back()),
            "fused attention in fp64 of batch 2, 3 heads of 8 over 7 positions");
}

TEST(AttentionCases, WhatNothingHasIsRefusedInOneSentence) {
  const auto with = [](auto change) -> std::string {
    AttentionAxes a = tiny();
    try {
      change(a);
      attention_cases(a);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(with([](AttentionAxes& a) { a.attentions = {"flash"}; }),
            "attention 'flash', expected naive or fused");
  EXPECT_EQ(with([](AttentionAxes& a) {
              a.sequences = {8, 0};
            }),
            "sequence 0, expected at least 1");
  EXPECT_EQ(with([](AttentionAxes& a) { a.widths = {-4}; }), "width -4, expected at least 1");
  EXPECT_EQ(with([](AttentionAxes& a) { a.heads = {}; }),
            "no heads to run with, expected at least one");
  EXPECT_EQ(with([](AttentionAxes& a) { a.precisions = {}; }),
            "no precision to run with, expected at least one");
  EXPECT_THAT(with([](AttentionAxes& a) { a.precisions = {"fp8"}; }),
              HasSubstr("precision 'fp8', expected fp32"));
  EXPECT_EQ(with([](AttentionAxes& a) { a = attention_grid("big"); }),
            "grid 'big', expected seed, cs336 or flash");
}

TEST(AttentionBench, RowsHaveTimesAndMemory) {
  AttentionAxes a = tiny();
  a.precisions = {"fp32", "fp64"};
  const std::vector<Row> rows = run_attention(a, kQuick);
  ASSERT_EQ(rows.size(), 4u);
  for (const Row& row : rows) {
    ASSERT_EQ(text(row, "status"), "ok") << text(row, "message");
    for (const char* phase : {"forward", "backward", "total"}) {
      const std::string name = phase;
      EXPECT_GT(*number(row, name + "_median_ms"), 0) << name;
      EXPECT_GT(*number(row, name + "_ms"), 0) << name;
      EXPECT_GE(*number(row, name + "_std_ms"), 0) << name;
      EXPECT_GT(*number(row, name + "_tflop_per_s"), 0) << name;
    }
    EXPECT_NEAR(*number(row, "total_ms"), *number(row, "forward_ms") + *number(row, "backward_ms"),
                1e-9 + 1e-6 * *number(row, "total_ms"));
    EXPECT_NEAR(*number(row, "forward_tflop_per_s") * *number(row, "forward_median_ms") * 1e9,
                2.0 * 2 * 3 * 17 * 17 * 8, 1e-6);
    EXPECT_LE(*number(row, "steps"), 3);
    EXPECT_GE(*number(row, "calls"), 1);

    const double mb = text(row, "precision") == "fp64" ? 8.0 / (1 << 20) : 4.0 / (1 << 20);
    const bool naive = text(row, "attention") == "naive";
    EXPECT_DOUBLE_EQ(*number(row, "model_mb"), mb * 2 * 17 * 4 * 3 * 8);
    EXPECT_DOUBLE_EQ(*number(row, "gradients_mb"), mb * 2 * 17 * 4 * 3 * 8);
    EXPECT_DOUBLE_EQ(*number(row, "saved_mb"), mb * 2 * 3 * 17 * (naive ? 17 : 1));
    EXPECT_DOUBLE_EQ(*number(row, "peak_mb"), *number(row, "model_mb") + *number(row, "saved_mb") +
                                                  *number(row, "scratch_mb") +
                                                  *number(row, "gradients_mb"));
  }
}

TEST(AttentionBench, MemoryThatDoesNotSufficeIsAResult) {
  AttentionBench bench({{}, 2, true}, kQuick, 1);
  for (const gpt::Attention how : {gpt::Attention::naive, gpt::Attention::fused}) {
    for (const int64_t time : {int64_t{1} << 33, int64_t{1} << 62}) {
      const Row row = bench.run({{8, 1, time, 64}, gpt::Compute::fp32, how});
      EXPECT_EQ(text(row, "status"), "oom");
      EXPECT_THAT(text(row, "message"), HasSubstr("MB, expected at most 95 % of the "));
      EXPECT_EQ(row.find("forward_ms"), nullptr);
    }
  }
  const AttentionCase wide{{1, 1, 4, int64_t{1} << 62}, gpt::Compute::fp32, gpt::Attention::naive};
  EXPECT_EQ(text(bench.run(wide), "status"), "oom");
}

TEST(AttentionBench, PrecisionsThatTheCpuHasNotAreUnsupported) {
  const Row row = one({{1, 1, 8, 8}, gpt::Compute::bf16, gpt::Attention::fused});
  EXPECT_EQ(text(row, "status"), "unsupported");
  EXPECT_EQ(text(row, "message"), "attention in bf16 on the CPU, expected fp32 or fp64");
}

TEST(AttentionBench, OnAGpuTheRowSaysWhatHasNoKernel) {
  if (!cuda::emulated()) GTEST_SKIP() << "for builds with an emulated GPU";
  const AttentionPlace gpu{{Device::Kind::cuda, 0}, 2, true};
  const auto status = [&](gpt::Compute compute, gpt::Attention how, int64_t width) {
    return text(one({{1, 1, 16, width}, compute, how}, gpu), "status");
  };
  EXPECT_EQ(status(gpt::Compute::fp32, gpt::Attention::fused, 256), "unsupported");
  EXPECT_EQ(status(gpt::Compute::tf32, gpt::Attention::fused, 16), "unsupported");
  EXPECT_EQ(status(gpt::Compute::fp64, gpt::Attention::naive, 16), "unsupported");
  for (const gpt::Compute c : {gpt::Compute::fp32, gpt::Compute::bf16, gpt::Compute::fp16}) {
    EXPECT_EQ(status(c, gpt::Attention::naive, 16), "ok");
    EXPECT_EQ(status(c, gpt::Attention::fused, 16), "ok");
  }
}

TEST(AttentionCheck, AgreesWithFp64OverOddShapes) {
  const AttentionPlace place{{}, 2, true};
  for (const int64_t width : {1, 8, 33, 64, 1040}) {
    for (const gpt::Attention how : {gpt::Attention::naive, gpt::Attention::fused}) {
      const AttentionAgreement a =
          compare_attention(place, {{1, 1, 8, width}, gpt::Compute::fp32, how}, 1);
      EXPECT_LT(a.error, attention_bound(gpt::Compute::fp32)) << width << a.worst;
      EXPECT_GT(a.error, 1e-9);  // it was not compared with itself
      EXPECT_EQ(a.time, 130);
    }
  }
  const AttentionAgreement wide =
      compare_attention(place, {{1, 1, 8, 16}, gpt::Compute::fp64, gpt::Attention::fused}, 1);
  EXPECT_LT(wide.error, attention_bound(gpt::Compute::fp64));
}

TEST(AttentionCheck, WhatDisagreesIsNotTimed) {
  const AttentionCase c{{1, 1, 8, 64}, gpt::Compute::fp16, gpt::Attention::fused};
  const auto verdict = [&](double error) -> std::string {
    try {
      require_agreement({error, "the gradient of keys", 130}, c);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(verdict(2e-3), "accepted");
  EXPECT_EQ(verdict(0.05),
            "the gradient of keys of fused attention in fp16, heads 64 wide, is 0.05 off fp64's "
            "over at most 130 positions, expected at most 3e-03: it is not timed");
  EXPECT_NE(verdict(NAN), "accepted");
}

TEST(AttentionTable, ShowsWhatVariesAndSaysWhatDidNotRun) {
  AttentionAxes a = tiny();
  a.precisions = {"fp32", "bf16"};
  const std::vector<Row> rows = run_attention(a, kQuick);
  const lab::Table table = attention_table(rows, TrainColumns::time);
  EXPECT_EQ(table.title, "Causal attention: batch 2, 3 heads, cpu, 2 threads");
  EXPECT_THAT(table.columns, Contains("precision"));
  EXPECT_THAT(table.columns, Contains("sequence"));
  EXPECT_THAT(table.columns, Not(Contains("batch")));
  EXPECT_THAT(table.columns, Not(Contains("saved_mb")));
  EXPECT_EQ(table.columns.back(), "status");
  EXPECT_THAT(table.notes, Contains(HasSubstr("largest error: fp32")));
  EXPECT_THAT(table.notes, Contains("unsupported (2 rows): attention in bf16 on the CPU, expected "
                                    "fp32 or fp64"));
  EXPECT_THAT(attention_table(rows, TrainColumns::memory).columns, Contains("saved_mb"));
  EXPECT_THAT(attention_table(rows, TrainColumns::all).columns, Contains("forward_std_ms"));
  EXPECT_TRUE(attention_table({}, TrainColumns::time).columns.empty());
}

TEST(AttentionTable, ComparesWithTorchsBestOfTheSameShape) {
  const auto row = [](const char* attention, int64_t sequence, double forward, double backward) {
    Row r;
    r.set("batch", 1).set("heads", 1).set("sequence", sequence).set("width", 64);
    r.set("precision", "bf16").set("attention", attention).set("device", "cuda:0");
    r.set("forward_median_ms", forward).set("backward_median_ms", backward).set("status", "ok");
    return r;
  };
  std::vector<Row> rows = {row("fused", 128, 2, 4), row("fused", 256, 2, 4),
                           row("torch flash", 128, 1, 8), row("torch cudnn", 128, 3, 6)};
  compare_with_torch(rows);
  EXPECT_DOUBLE_EQ(*number(rows[0], "forward_of_torch"), 0.5);
  EXPECT_DOUBLE_EQ(*number(rows[0], "backward_of_torch"), 1.5);
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(rows[i].find("forward_of_torch"), nullptr);
  EXPECT_THAT(attention_table(rows, TrainColumns::time).columns, Contains("forward_of_torch"));
}

TEST(TorchAttention, RowsAreReadUntilTorchEnds) {
  const test::Folder folder;
  const std::string python = folder / "python";
  std::ofstream(python) << "#!/bin/sh\n"
                           "case \"$2\" in *find_spec*) echo True; exit;; esac\n"
                           "echo '{\"dtype\":\"bf16\",\"backend\":\"flash\",\"status\":\"ok\","
                           "\"forward_us\":5,\"forward_graph_us\":4,\"backward_us\":9,"
                           "\"backward_graph_us\":null,\"peak_mb\":1.048576}'\n"
                           "echo '{\"dtype\":\"bf16\",\"backend\":\"math\","
                           "\"status\":\"unsupported\",\"why\":\"none\"}'\n";
  std::filesystem::permissions(python, std::filesystem::perms::owner_all);
  ASSERT_EQ(setenv("GALLOP_PYTHON", python.c_str(), 1), 0);
  std::vector<std::string> notes;
  EXPECT_NO_THROW(lab::require_torch());
  const auto rows = lab::torch_attention({{{1, 2, 128, 64}}, {"bf16", "tf32"}}, notes);
  setenv("GALLOP_PYTHON", "/nowhere/python3", 1);
  EXPECT_THROW(lab::require_torch(), Error);
  unsetenv("GALLOP_PYTHON");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(text(rows[0], "attention"), "torch flash");
  EXPECT_DOUBLE_EQ(*number(rows[0], "forward_median_ms"), 0.004);
  EXPECT_DOUBLE_EQ(*number(rows[0], "backward_median_ms"), 0.009);
  EXPECT_DOUBLE_EQ(*number(rows[0], "peak_mb"), 1);
  EXPECT_EQ(text(rows[1], "message"), "none");
  EXPECT_THAT(notes, ElementsAre(HasSubstr("torch gave 2 of 4 rows: ")));
}

}  // namespace
}  // namespace gallop::bench
