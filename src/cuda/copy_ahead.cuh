// SPDX-License-Identifier: MIT
// From global to shared memory without going through registers, while the thread goes on.
#pragma once

#include "cuda/vectors.cuh"

namespace gallop::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define GALLOP_COPIES_AHEAD 1
#else
#define GALLOP_COPIES_AHEAD 0  // older GPUs copy at once
#endif

// N bytes: 4, 8 or 16, both addresses aligned to as many.
template <int N>
__device__ __forceinline__ void copy_ahead(void* to, const void* from) {
#if GALLOP_COPIES_AHEAD
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  if constexpr (N == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(N)
                 : "memory");
  }
#else
  using Piece = detail::Choose<N == 16, uint4, detail::Choose<N == 8, uint2, Bits32> >;
  *static_cast<Piece*>(to) = *static_cast<const Piece*>(from);
#endif
}

// What was asked for since the last call belongs together.
__device__ __forceinline__ void end_of_copies() {
#if GALLOP_COPIES_AHEAD
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// All but the last `Later` of these groups have arrived, as far as this thread asked for them.
template <int Later>
__device__ __forceinline__ void wait_for_copies() {
#if GALLOP_COPIES_AHEAD
  asm volatile("cp.async.wait_group %0;" ::"n"(Later) : "memory");
#endif
}

}  // namespace gallop::cuda
