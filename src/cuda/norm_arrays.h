// SPDX-License-Identifier: MIT
// What mode unfused of rules with norms needs on a GPU besides passes over arrays.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/norm_data.h"

namespace gallop::cuda {

// Number `value` of each element's row or column.
cudaError_t launch_spread(bool f64, const NormTensor& norm, Over over, int value, void* out,
                          Index n, void* stream);
// Sum q, over `over`, of summands that lie in an array: added up as the fused passes do, to the
// bit.
cudaError_t launch_add_up(bool f64, const Step& step, unsigned tensor, const NormTensor& norm,
                          int q, Over over, const void* summands, void* stream);

}  // namespace gallop::cuda
