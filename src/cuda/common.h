// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/norm_data.h"

namespace gallop::cuda {

// Kernels of one Step.
const void* square_sum_kernel();
const void* zero_grads_kernel();

// New gradient pointers, few enough to travel with the launch.
struct GradChanges {
  static constexpr unsigned kMost = 256;
  unsigned count;
  unsigned index[kMost];
  void* grad[kMost];
};

cudaError_t launch_fill_masters(const void* in, float* out, Index n, bool bf16, void* stream);
cudaError_t launch_change_grads(void** grads, const GradChanges& changes, void* stream);
cudaError_t launch_change_group(Group* group, const Group& value, void* stream);
// Row r of each member's matrices times its number `value`: bf16, or fp64 if wide. Members lie
// `apart` elements from one another.
// The upper half of symmetric bf16 matrices n x n, `stride` elements apart, from the lower one, but
// for the squares of `side` on the diagonal.
cudaError_t launch_mirror(void* squares, Index n, Index side, Index stride, unsigned count,
                          void* stream);
cudaError_t launch_scale_rows(const NormTensor* norms, const unsigned* members, unsigned count,
                              int value, const void* in, void* out, Index apart, bool wide,
                              void* stream);
cudaError_t launch_count_skipped(Control* control, void* stream);

}  // namespace gallop::cuda
