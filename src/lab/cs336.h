// SPDX-License-Identifier: MIT
// The end-to-end tables of CS336's assignment: time by model, context, precision and mode, what
// warm-up changes, and memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/train_bench.h"
#include "lab/row.h"

namespace gallop::lab {

struct Cs336Options {
  Cs336Options();

  bench::TrainAxes axes;  // contexts beyond a model's own are left out
  bench::TrainTiming timing;
  std::vector<int64_t> warmups = {0, 1, 5};  // of the second table
  int64_t warmup_context = 256;
  std::vector<int64_t> memory_contexts = {128, 256, 512};
};

// Three: end to end, warm-up, memory. Every row has its table's name in the field `part`.
std::vector<Table> cs336(const Cs336Options& options);

// Sentences that the rows alone carry.
std::vector<std::string> read_times(const std::vector<Row>& rows);
std::vector<std::string> read_warmup(const std::vector<Row>& rows);
std::vector<std::string> read_memory(const std::vector<Row>& rows);

}  // namespace gallop::lab
