// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/row.h"

namespace gallop::lab {

// Runs benchmarks/baselines/torch_adam_grid.py, which is built into the program, with the python3
// on PATH (or GALLOP_PYTHON) and returns its rows. Throws when there is no torch.
std::vector<Row> torch_grid_rows(const std::vector<int64_t>& tensors,
                                 const std::vector<int64_t>& sizes, int threads,
                                 const std::string& modes);

}  // namespace gallop::lab
