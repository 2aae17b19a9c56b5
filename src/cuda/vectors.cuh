// SPDX-License-Identifier: MIT
// V consecutive values of one stream, to and from registers: 4 with streaming 16-byte accesses, for
// memory that is aligned, or 1.
#pragma once

#include "core/convert.h"
#include "cuda/step_data.h"

namespace gallop::cuda {

inline constexpr int kVector = 4;

template <class T>
struct Wide;
template <>
struct Wide<float> {
  using type = float4;
};
template <>
struct Wide<double> {
  using type = double2;  // two of them
};
template <>
struct Wide<Half> {
  using type = uint2;
};

template <class T, int V>
__device__ __forceinline__ void load(const void* base, int i, T (&out)[V]) {
  const T* p = static_cast<const T*>(base) + i;
  if constexpr (V == 1) {
    out[0] = __ldcs(p);
  } else {
    using W = typename Wide<T>::type;
#pragma unroll
    for (int k = 0; k < static_cast<int>(V * sizeof(T) / sizeof(W)); ++k) {
      reinterpret_cast<W*>(out)[k] = __ldcs(reinterpret_cast<const W*>(p) + k);
    }
  }
}

template <class T, int V>
__device__ __forceinline__ void store(void* base, int i, const T (&in)[V]) {
  T* p = static_cast<T*>(base) + i;
  if constexpr (V == 1) {
    __stcs(p, in[0]);
  } else {
    using W = typename Wide<T>::type;
#pragma unroll
    for (int k = 0; k < static_cast<int>(V * sizeof(T) / sizeof(W)); ++k) {
      __stcs(reinterpret_cast<W*>(p) + k, reinterpret_cast<const W*>(in)[k]);
    }
  }
}

// ---- any storage, as fp32; which one is the same for the whole block ----

template <int V>
__device__ __forceinline__ void load_any(const void* data, const void* low, Storage storage, int i,
                                         float (&out)[V]) {
  alignas(16) Half h[V];
  switch (storage) {
    case Storage::bf16_nearest:
    case Storage::bf16_stochastic:
      load(data, i, h);
#pragma unroll
      for (int k = 0; k < V; ++k) out[k] = from_bf16(h[k]);
      return;
    case Storage::f16_nearest:
    case Storage::f16_stochastic:
      load(data, i, h);
#pragma unroll
      for (int k = 0; k < V; ++k) out[k] = from_f16(h[k]);
      return;
    case Storage::bf16_master:
    case Storage::f16_master:
      load(low, i, out);
      return;
    case Storage::bf16_remainder: {
      alignas(16) Half rest[V];
      load(data, i, h);
      load(low, i, rest);
#pragma unroll
      for (int k = 0; k < V; ++k) out[k] = join_float(h[k], rest[k]);
      return;
    }
    default:
      load(data, i, out);
  }
}

// first: of the chunk within its tensor; key: of the stream's random bits.
template <int V>
__device__ __forceinline__ void store_any(void* data, void* low, Storage storage, Index first,
                                          int i, Bits64 key, const float (&in)[V]) {
  alignas(16) Half h[V];
  const auto random = [&](int k) {
    const Index at = first + i;
    const Bits32 lane = static_cast<Bits32>(at % cpu::kBlock) + k;
    return lane_bits(block_key(key, static_cast<Bits64>(at / cpu::kBlock)), lane);
  };
  switch (storage) {
    case Storage::bf16_nearest:
#pragma unroll
      for (int k = 0; k < V; ++k) h[k] = to_bf16_nearest(in[k]);
      break;
    case Storage::bf16_stochastic:
#pragma unroll
      for (int k = 0; k < V; ++k) h[k] = to_bf16_stochastic(in[k], random(k));
      break;
    case Storage::f16_nearest:
#pragma unroll
      for (int k = 0; k < V; ++k) h[k] = to_f16_nearest(in[k]);
      break;
    case Storage::f16_stochastic:
#pragma unroll
      for (int k = 0; k < V; ++k) h[k] = to_f16_stochastic(in[k], random(k));
      break;
    case Storage::bf16_master:
      store(low, i, in);
#pragma unroll
      for (int k = 0; k < V; ++k) h[k] = to_bf16_nearest(in[k]);
      break;
    case Storage::f16_master:
      store(low, i, in);
#pragma unroll
      for (int k = 0; k < V; ++k) h[k] = to_f16_nearest(in[k]);
      break;
    case Storage::bf16_remainder: {
      alignas(16) Half rest[V];
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const SplitFloat split = split_float(in[k]);
        h[k] = split.bf16;
        rest[k] = split.remainder;
      }
      store(low, i, rest);
      break;
    }
    default:
      store(data, i, in);
      return;
  }
  store(data, i, h);
}

__device__ __forceinline__ int bytes_of(Storage s) {
  return s == Storage::f64 ? 8 : s == Storage::f32 ? 4 : 2;
}

__device__ __forceinline__ void* advanced(void* p, Index bytes) {
  return static_cast<char*>(p) + bytes;
}

}  // namespace gallop::cuda
