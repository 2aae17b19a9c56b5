// SPDX-License-Identifier: MIT
// Adam and Adan over GPT-2 shapes, one tensor at a time and all at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/sampler.h"
#include "gallop/types.h"
#include "lab/row.h"

namespace gallop::lab {

struct AdanGpt2Options {
  Device device;
  int threads = 0;
  int steps = 200;                             // the total that the table shows
  int64_t most_parameters = int64_t{1} << 62;  // shapes beyond are left out
  bench::SamplerOptions sampler;
};

// One row for each of 25 combinations of heads, layers and width, with `time` in the field `part`.
Table adan_gpt2(const AdanGpt2Options& options);

}  // namespace gallop::lab
