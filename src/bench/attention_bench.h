// SPDX-License-Identifier: MIT
// Times attention alone, forward and backward: check first, then warm up, then measure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench/attention_work.h"
#include "bench/train_bench.h"
#include "gallop/error.h"
#include "lab/row.h"

namespace gallop::bench {

// Everything that is varied, by the names people give it.
struct AttentionAxes {
  std::vector<int64_t> batches = {8}, heads = {1}, sequences = {256, 1024}, widths = {64};
  std::vector<std::string> precisions = {"fp32"};
  std::vector<std::string> attentions = {"naive", "fused"};
  AttentionPlace place;
  uint64_t seed = 1;
};

// seed: short sequences of very wide heads; cs336: long ones of narrow heads; flash: one sequence
// in bf16 and fp32, up to 65,536 positions.
AttentionAxes attention_grid(std::string_view name);

// The full product. Throws on a name or number that nothing has.
std::vector<AttentionCase> attention_cases(const AttentionAxes& axes);

struct AttentionTiming {
  int64_t warmup = 5;       // samples that are not in the figures
  int64_t steps = 100;      // samples that are; at most
  double time_limit_s = 1;  // for each of the two; one sample is always taken
};

// Output and gradients of queries, keys and values beside those of fp64 on the CPU.
struct AttentionAgreement {
  double error = 0;   // the largest, norm by norm
  std::string worst;  // which has it
  int64_t time = 0;   // the longest sequence compared
};

double attention_bound(gpt::Compute compute);  // the largest error there may be
// Small shapes of the same kind; throws what the device throws.
AttentionAgreement compare_attention(const AttentionPlace& place, const AttentionCase& c,
                                     uint64_t seed);
// Throws unless the error is within the bound.
void require_agreement(const AttentionAgreement& agreement, const AttentionCase& c);

// Fields of a row: what the case is, status, and where that is ok, times and memory. Memory that
// does not suffice, and what no kernel can do, are results.
class AttentionBench {
 public:
  AttentionBench(const AttentionPlace& place, const AttentionTiming& timing, uint64_t seed)
      : place_(place), timing_(timing), seed_(seed) {}

  lab::Row run(const AttentionCase& c);

 private:
  struct Verdict {
    AttentionAgreement agreement;
    ErrorCode code = ErrorCode::unsupported;
    std::string refused;  // empty: it agrees
  };
  AttentionAgreement check(const AttentionCase& c);
  void measure(const AttentionCase& c, lab::Row& row);

  AttentionPlace place_;
  AttentionTiming timing_;
  uint64_t seed_;
  std::map<std::string, Verdict> verdicts_;  // by precision, attention and width
};

std::vector<lab::Row> run_attention(const AttentionAxes& axes, const AttentionTiming& timing);

// Beside rows whose attention is "torch ...": in ours, how many times as fast as torch's best.
void compare_with_torch(std::vector<lab::Row>& rows);

// For people: what varies and the figures, with notes on what they mean and what did not run.
lab::Table attention_table(std::vector<lab::Row> rows, TrainColumns columns);

}  // namespace gallop::bench
