// SPDX-License-Identifier: MIT
// What it takes to get kernels that are compiled at run time: not part of any step's time.
#pragma once

#include "bench/step_bench.h"

namespace gallop::bench {

// compile_warmup_ms: when nothing was compiled before; cached_warmup_ms: when it lies in the cache,
// as in every later process. Nothing is set where all kernels are linked in.
void add_warmup(const StepContender& c, Device device, lab::Row& row);

// The columns and a note, if any row has them.
void show_warmup(lab::Table& table);

}  // namespace gallop::bench
