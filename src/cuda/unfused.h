// SPDX-License-Identifier: MIT
#pragma once

#include "core/scratch.h"
#include "cuda/step_data.h"
#include "optimizer/rule.h"

namespace gallop {
struct Slot;
}

namespace gallop::cuda {

// The rule's entry on one tensor, operator by operator. numbers: kNumbers doubles on the device.
struct UnfusedUpdate {
  const Rule& rule;
  int entry;
  const Step& step;
  Scratch& scratch;
  void* stream;

  void run(const Slot& slot, unsigned tensor, const double* numbers) const;
};

}  // namespace gallop::cuda
