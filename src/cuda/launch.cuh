// SPDX-License-Identifier: MIT
// How kernels are named and launched. Plain functions instead of nvcc's own syntax, so that C++
// compilers can read it too (see src/cuda_emulator).
#pragma once

#include <cuda_runtime_api.h>

namespace gallop::cuda {
namespace {

// A kernel as cudaLaunchKernel takes it.
template <class... A>
const void* address_of(void (*kernel)(A...)) {
#if defined(GALLOP_EMULATED_CUDA)
  return emulator::announced(kernel);
#else
  return reinterpret_cast<const void*>(kernel);
#endif
}

template <class T>
struct AsItIs {
  using Type = T;
};

// With so many bytes of shared memory on top of what the kernel declares.
template <class... A>
cudaError_t launch_sharing(size_t shared_bytes, void (*kernel)(A...), dim3 grid, dim3 block,
                           void* stream, typename AsItIs<A>::Type... values) {
  void* arguments[] = {const_cast<void*>(static_cast<const void*>(&values))...};
  return cudaLaunchKernel(address_of(kernel), grid, block, arguments, shared_bytes,
                          static_cast<cudaStream_t>(stream));
}

template <class... A>
cudaError_t launch(void (*kernel)(A...), dim3 grid, dim3 block, void* stream,
                   typename AsItIs<A>::Type... values) {
  return launch_sharing(0, kernel, grid, block, stream, values...);
}

}  // namespace
}  // namespace gallop::cuda
