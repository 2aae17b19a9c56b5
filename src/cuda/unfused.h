// SPDX-License-Identifier: MIT
#pragma once

#include "core/scratch.h"
#include "cuda/arrays.h"
#include "cuda/norm_data.h"
#include "optimizer/rule.h"

namespace gallop {
struct Slot;
}

namespace gallop::cuda {

// The rule's entry, or a pass of it, on one tensor, operator by operator. numbers: kNumbers doubles
// on the device.
struct UnfusedUpdate {
  const Rule& rule;
  int entry;
  const Step& step;
  Scratch& scratch;
  void* stream;

  void run(const Slot& slot, unsigned tensor, const double* numbers) const;
  // `entry` is the pass; states: where they are on the device, scratch ones too.
  void run_pass(const Slot& slot, unsigned tensor, const double* numbers, const NormTensor& norm,
                void* const* states) const;
  void zero_grad(const Slot& slot, unsigned tensor, const NormTensor& norm) const;

 private:
  Target target_of(unsigned tensor, const NormTensor& norm) const;
  template <class Apply>
  void with_arrays(const Slot& slot, const Target& target, const double* numbers, bool grad,
                   unsigned writes, void* const* states, Apply apply) const;
};

}  // namespace gallop::cuda
