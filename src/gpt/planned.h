// SPDX-License-Identifier: MIT
// The memory of training, known before any of it is taken.
#pragma once

#include "gpt/trainer.h"

namespace gallop::gpt {

struct Planned {
  MemoryUse peak;
  // Bytes that are taken for all of a run; gaps between buffers make it more than the peak.
  size_t allocated = 0;
};

// Throws what Trainer(options) would, but for memory that does not suffice.
Planned plan_training(const TrainerOptions& options);

// What Trainer(options).memory() would say, without its memory.
inline MemoryUse planned_memory(const TrainerOptions& options) {
  return plan_training(options).peak;
}

}  // namespace gallop::gpt
