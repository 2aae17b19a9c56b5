// SPDX-License-Identifier: MIT
// What training with Adam and with Adan takes of memory, over 25 GPT-2 shapes; planned, not run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gallop/types.h"
#include "gpt/ops.h"
#include "lab/row.h"

namespace gallop::lab {

struct AdanMemoryOptions {
  Device device;
  int threads = 0;
  int64_t batch = 1;
  gpt::Attention attention = gpt::Attention::naive;
  int64_t memory_bytes = 0;  // what there is; 0: not known
};

// Two, with a row for each shape: the peak of a step, and by class. Every row has its table's name
// in the field `part`.
std::vector<Table> adan_memory(const AdanMemoryOptions& options);

// Sentences that the first table's rows alone carry.
std::vector<std::string> read_peaks(const std::vector<Row>& rows);

}  // namespace gallop::lab
