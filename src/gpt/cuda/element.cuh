// SPDX-License-Identifier: MIT
// Elements of three types, to and from fp32 in registers.
#pragma once

#include "core/convert.h"
#include "cuda/launch.cuh"
#include "gallop/types.h"

namespace gallop::gpt::cuda {

using gallop::cuda::launch;

struct Bf16 {
  Half bits;
};
struct F16 {
  Half bits;
};

__device__ __forceinline__ float value(float x) { return x; }
__device__ __forceinline__ float value(Bf16 x) { return from_bf16(x.bits); }
__device__ __forceinline__ float value(F16 x) { return from_f16(x.bits); }
__device__ __forceinline__ void put(float x, float& to) { to = x; }
__device__ __forceinline__ void put(float x, Bf16& to) { to.bits = to_bf16_nearest(x); }
__device__ __forceinline__ void put(float x, F16& to) { to.bits = to_f16_nearest(x); }

// V elements that lie side by side, aligned to all of them.
template <class E, int V>
struct alignas(V * sizeof(E)) Pack {
  E of[V];
};

template <int V, class E>
__device__ __forceinline__ void read(const E* from, float (&to)[V]) {
  const auto pack = *reinterpret_cast<const Pack<E, V>*>(from);
#pragma unroll
  for (int i = 0; i < V; ++i) to[i] = value(pack.of[i]);
}

template <int V, class E>
__device__ __forceinline__ void write(const float (&from)[V], E* to) {
  Pack<E, V> pack;
#pragma unroll
  for (int i = 0; i < V; ++i) put(from[i], pack.of[i]);
  *reinterpret_cast<Pack<E, V>*>(to) = pack;
}

inline constexpr int kWarp = 32;

__device__ __forceinline__ float warp_sum(float x) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(~0u, x, lanes);
    x = other > x || other != other ? other : x;
  }
  return x;
}

// The sum over a block of Threads, for every thread. `room` may be used again after the next
// barrier but one.
template <int Threads>
__device__ __forceinline__ float block_sum(float x, float (&room)[Threads / kWarp]) {
  x = warp_sum(x);
  if (threadIdx.x % kWarp == 0) room[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < Threads / kWarp; ++i) sum += room[i];
  return sum;
}

template <int Threads>
__device__ __forceinline__ float block_max(float x, float (&room)[Threads / kWarp]) {
  x = warp_max(x);
  if (threadIdx.x % kWarp == 0) room[threadIdx.x / kWarp] = x;
  __syncthreads();
  float most = room[0];
#pragma unroll
  for (int i = 1; i < Threads / kWarp; ++i) {
    most = room[i] > most || room[i] != room[i] ? room[i] : most;
  }
  return most;
}

// f(E{}) with the element of a DType; fp64 is not for GPUs here.
template <class F>
void with_element(DType type, F f) {
  switch (type) {
    case DType::bf16:
      return f(Bf16{});
    case DType::f16:
      return f(F16{});
    default:
      return f(float{});
  }
}

}  // namespace gallop::gpt::cuda
