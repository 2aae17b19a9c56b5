// SPDX-License-Identifier: MIT
// Kernels with more shared memory than they can declare.
#pragma once

#include "cuda/launch.cuh"

namespace gallop::gpt::cuda {
namespace {

// With so many bytes of shared memory, more than the 48 KB that kernels have for the asking.
template <class... A>
cudaError_t launch_with(size_t shared_bytes, void (*kernel)(A...), dim3 grid, dim3 block,
                        void* stream, typename gallop::cuda::AsItIs<A>::Type... values) {
  const cudaError_t error = cudaFuncSetAttribute(gallop::cuda::address_of(kernel),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(shared_bytes));
  if (error != cudaSuccess) return error;
  return gallop::cuda::launch_sharing(shared_bytes, kernel, grid, block, stream, values...);
}

// Where a kernel that was launched with shared memory finds it.
__device__ __forceinline__ float* shared_room() {
#if defined(GALLOP_EMULATED_CUDA)
  alignas(16) __shared__ float room[emulator::kSharedBytes / sizeof(float)];
#else
  extern __shared__ __align__(16) float room[];
#endif
  return room;
}

}  // namespace
}  // namespace gallop::gpt::cuda
