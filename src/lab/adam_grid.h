// SPDX-License-Identifier: MIT
// The grid of tensor counts and sizes over which people time Adam, with a reading of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/sampler.h"
#include "lab/row.h"

namespace gallop::lab {

struct AdamGridOptions {
  std::string optimizer = "adam";
  std::vector<int64_t> tensors = {1, 2, 4, 8, 16, 32};
  std::vector<int64_t> sizes = {16384, 65536, 262144, 1048576, 4194304};
  int threads = 0;
  std::vector<std::string> torch_modes;  // empty: without torch
  bench::SamplerOptions sampler;
};

// One row a cell: num_params, param_size, and ms per iteration for each mode.
Table adam_grid(const AdamGridOptions& options);

// Sentences on where each mode wins and by how much, from the rows alone.
std::vector<std::string> read_grid(const std::vector<Row>& rows);

}  // namespace gallop::lab
