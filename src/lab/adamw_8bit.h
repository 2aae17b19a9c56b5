// SPDX-License-Identifier: MIT
// AdamW with fp32, 8-bit and hybrid state: tokens a second by batch, memory, loss of a longer run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gallop/types.h"
#include "lab/row.h"

namespace gallop::lab {

struct Adamw8bitOptions {
  std::vector<std::string> models = {"char"};
  std::vector<int64_t> batches = {16, 24, 32, 48, 64, 96, 128};
  // The first is what the others are compared with.
  std::vector<std::string> states = {"fp32", "8bit", "hybrid"};
  std::string optimizer = "adamw", precision = "fp32", mode = "compiled";
  int64_t context = 0;  // 0: each model's own
  int64_t steps = 50, warmup = 10;
  double time_limit_s = 0;  // for a batch size and a state; 0: none

  int64_t train_steps = 100;  // of the longer run; 0: none
  int64_t train_batch = 16;
  int64_t runs = 1;  // of it, with seeds of their own
  double lr = 1e-3;
  std::string data = "synthetic";

  Device device;
  int threads = 0;
  uint64_t seed = 1;
};

// Three: throughput, memory, loss. Every row has its table's name in the field `part`.
std::vector<Table> adamw_8bit(const Adamw8bitOptions& options);

// Sentences that the rows alone carry.
std::vector<std::string> read_throughput(const std::vector<Row>& rows,
                                         const std::vector<std::string>& states);
std::vector<std::string> read_loss(const std::vector<Row>& rows, const std::string& base);

}  // namespace gallop::lab
