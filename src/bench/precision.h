// SPDX-License-Identifier: MIT
// What a number format makes of the same small number added many times.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/row.h"

namespace gallop::bench {

struct PrecisionOptions {
  double value = 0.01;   // added to 0, once rounded to the format it is added in
  int64_t count = 1000;  // additions
  double start = 1;      // of a parameter, stored after each fp32 update
  std::vector<double> updates = {5e-3, 1e-3, 1e-4, 1e-5};
  int seeds = 64;  // runs of stochastic rounding: seed, seed + 1, ...
  uint64_t seed = 1;
};

// One row for each arithmetic: test "sum" for the value, "parameter" for every update. Errors are
// relative to the result without rounding; negative: too small.
lab::Table precision(const PrecisionOptions& o);

}  // namespace gallop::bench
