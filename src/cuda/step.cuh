// SPDX-License-Identifier: MIT
// What every kernel of a step asks.
#pragma once

#include "cuda/step_data.h"

namespace gallop::cuda {

__device__ inline double grad_divisor(const Step& s) {
  return s.grad_scale == nullptr ? s.divisor : s.divisor * static_cast<double>(*s.grad_scale);
}

__device__ inline bool is_skipped(const Step& s) {
  if (s.found_inf != nullptr && *s.found_inf != 0) return true;
  return s.needs_norm && s.control->skip != 0;
}

}  // namespace gallop::cuda
