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
  const void* const address = gallop::cuda::address_of(kernel);
  const cudaError_t error = cudaFuncSetAttribute(
      address, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  if (error != cudaSuccess) return error;
  void* arguments[] = {const_cast<void*>(static_cast<const void*>(&values))...};
  return cudaLaunchKernel(address, grid, block, arguments, shared_bytes,
                          static_cast<cudaStream_t>(stream));
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
