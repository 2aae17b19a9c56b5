// SPDX-License-Identifier: MIT
// What nvcc knows by itself, for a C++ compiler. Included before the first line of every .cu file.
//
// A block's threads are fibers of one thread of the CPU, hence __shared__; they change places where
// they wait for one another, and nowhere else.
#pragma once

// Before the words below become macros: the standard library uses some of them.
#include <math.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda_emulator/cuda_runtime_api.h"
#include "cuda_emulator/kernels.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__

struct EmulatedIndex {
  unsigned x, y, z;
};
// What kernels call is found by those that are compiled at run time, too.
#pragma GCC visibility push(default)
extern thread_local EmulatedIndex threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads();
void __nanosleep(unsigned ns);

namespace gallop::emulator {

[[noreturn]] void fail(const char* what);
// What the thread of the same warp in lane `from` brings.
std::uint64_t exchange(std::uint64_t bits, unsigned from);
#pragma GCC visibility pop

template <class T>
T shuffled(unsigned mask, T value, unsigned from) {
  static_assert(sizeof(T) <= 8);
  if (mask != ~0u) fail("a shuffle of part of a warp");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(bits, from);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
const T* aligned(const T* p) {
  if (reinterpret_cast<std::uintptr_t>(p) % sizeof(T) != 0) fail("an access that is not aligned");
  return p;
}

}  // namespace gallop::emulator

// An exchange is where the warp's threads wait for one another.
inline void __syncwarp() { gallop::emulator::exchange(0, threadIdx.x % 32); }

template <class T>
T __shfl_sync(unsigned mask, T value, unsigned from) {
  return gallop::emulator::shuffled(mask, value, from % 32);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  return gallop::emulator::shuffled(mask, value, lane + distance < 32 ? lane + distance : lane);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, unsigned lanes) {
  return gallop::emulator::shuffled(mask, value, threadIdx.x % 32 ^ lanes);
}

template <class T>
T __ldcs(const T* p) {
  return *gallop::emulator::aligned(p);
}
template <class T>
T __ldcg(const T* p) {
  return *gallop::emulator::aligned(p);
}
template <class T>
void __stcs(T* p, T value) {
  *const_cast<T*>(gallop::emulator::aligned(p)) = value;
}

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> value) {
  return std::atomic_ref(*p).fetch_add(value);
}
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
