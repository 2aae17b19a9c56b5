// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include "cpu/kernel.h"

namespace gallop::cpu {

// A parameter as kernels see it.
struct Tensor {
  void* param = nullptr;
  void* low = nullptr;
  void* grad = nullptr;
  void* state[detail::kMaxStates] = {};
  float* scale[detail::kMaxStates] = {};  // of quantised states
  Index n = 0;
  Storage param_storage = Storage::f32, grad_storage = Storage::f32;
  Storage state_storage[detail::kMaxStates] = {};
  unsigned present = 0;       // bit j: state j is kept
  View view{1, 1, 0, false};  // of rules with norms
  size_t index = 0;           // among all of the optimizer's

  Path path() const;
};

// One tensor in one step.
struct Job {
  const Tensor* tensor;
  const double* coef;
  double grad_scale, grad_limit, grad_factor;
  Bits64 key;       // of its random bits in this step
  Bits32 dither;    // of its quantised states, likewise
  unsigned passes;  // of a rule with norms: which to run
  const double* hyper = nullptr;
  Clock clock = {};
};

}  // namespace gallop::cpu
