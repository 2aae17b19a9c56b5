// SPDX-License-Identifier: MIT
// Which optimizers and formats of state fit a memory, and about how long steps take: planned and
// predicted, nothing is trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/trainer.h"
#include "lab/hardware.h"
#include "lab/row.h"

namespace gallop::lab {

// For CUDA's context, about 0.5 GB, and libraries: the driver had 71 to 111 MB less than was
// planned (docs/results.md).
inline constexpr int64_t kReservedOnGpu = 600'000'000;

enum class Choice { either, no, yes };

struct AdviseOptions {
  // A preset with or without changes, or what bench::parse_shapes takes: then there are parameters,
  // gradients and state alone.
  std::string model = "gpt2";
  Hardware on;
  int64_t memory_bytes = 0;    // 0: all of the hardware's
  int64_t reserved_bytes = 0;  // of these, for others
  int64_t batch = 4, context = 0;
  std::optional<gpt::Compute> compute;  // default: bf16 on a GPU, fp32 on a CPU
  std::vector<std::string> optimizers;  // empty: all
  // Formats or policies; empty: fp32, bf16, 8bit and 4bit, without those that save nothing.
  std::vector<std::string> states;
  // either: only where it does not fit without.
  Choice overlap = Choice::either, recompute = Choice::either;
  int threads = 0;
  bool ask_device = true;  // sizes as this machine's GPU has them, if there is one
};

// What fits comes first, the fastest at the top.
Table advise(const AdviseOptions& options);

}  // namespace gallop::lab
