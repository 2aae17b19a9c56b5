// SPDX-License-Identifier: MIT
// Passes of mode unfused on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/step_data.h"

namespace gallop::cuda {

// How a pass computes; rough: see cuda/rough.cuh.
enum class Arithmetic { f32, rough, f64 };

// One operation over n elements of fp32 or fp64.
cudaError_t launch_pass(Arithmetic arithmetic, cpu::Op op, void* out, const cpu::Operand* in,
                        Index n, cudaStream_t stream);
// The passes below write what is no temporary, and so do nothing when the step is skipped, when an
// entry without gradient (`stepped`) comes before the tensor's first step, or when a number of the
// tensor says so.
struct Target {
  unsigned tensor;
  bool stepped;
  const double *if_set = nullptr, *if_zero = nullptr;
};
cudaError_t launch_write(bool f64, const Step& step, Target target, void* out,
                         const cpu::Operand& in, Index n, cudaStream_t stream);
// Before quantised states are stored: values that are not finite become zero and are counted. Where
// gradients that are not finite reset (grad is given), such a parameter gets back what it was
// before.
struct Settled {
  const float *grad, *before;
  float* param;
  float* state[detail::kMaxStates];  // quantised ones, or all where they are reset; others are null
};
cudaError_t launch_settle(const Step& step, Target target, const Settled& all, Index n,
                          cudaStream_t stream);
// fp32 values of any storage, and back; low: master, remainder or scales; `number` is the stream's,
// of the tensor's random bits.
cudaError_t launch_decode(const void* data, const void* low, Storage storage, float* out, Index n,
                          cudaStream_t stream);
cudaError_t launch_encode(const Step& step, Target target, Bits64 number, void* data, void* low,
                          Storage storage, const float* in, Index n, cudaStream_t stream);

}  // namespace gallop::cuda
