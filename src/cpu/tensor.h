// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include "cpu/kernel.h"

namespace gallop::cpu {

// Kernels compiled for tensors of one kind, by their number in the rule. Those with coefficients
// folded in are for steps whose coefficients are these.
struct FittedKernels {
  const Kernel* any = nullptr;
  const Kernel* folded = nullptr;
  unsigned known = 0;  // bit i: coefficient i is folded in
  double coef[detail::kMaxCoefs] = {};

  Kernel of(int number, const double* now) const {
    if (folded == nullptr) return any[number];
    bool fits = true;
    for (int i = 0; known >> i != 0; ++i) {
      fits = fits && ((known >> i & 1) == 0 || coef[i] == now[i]);
    }
    return fits ? folded[number] : any[number];
  }
};

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
  unsigned present = 0;                   // bit j: state j is kept
  View view{1, 1, 0, false};              // of rules with norms
  size_t index = 0;                       // among all of the optimizer's
  const FittedKernels* fitted = nullptr;  // of mode compiled

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
