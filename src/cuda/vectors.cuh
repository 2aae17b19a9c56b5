// SPDX-License-Identifier: MIT
// V consecutive values of one stream, to and from registers: 4 with streaming 16-byte accesses, for
// memory that is aligned, or 1.
#pragma once

#include "core/convert.h"
#include "cuda/step_data.h"

namespace gallop::cuda {

inline constexpr int kVector = 4;

// The widest access that V elements of T fill.
template <class T, int V>
using Wide =
    detail::Choose<sizeof(T) == 4, float4, detail::Choose<V * sizeof(T) % 16 == 0, uint4, uint2>>;

// Kept: a later pass will read it again, and may find it in the cache.
template <bool Kept = false, class T, int V>
__device__ __forceinline__ void load(const void* base, int i, T (&out)[V]) {
  const auto read = [](const auto* from) { return Kept ? __ldcg(from) : __ldcs(from); };
  const T* p = static_cast<const T*>(base) + i;
  if constexpr (V == 1) {
    out[0] = read(p);
  } else {
    using W = Wide<T, V>;
#pragma unroll
    for (int k = 0; k < static_cast<int>(V * sizeof(T) / sizeof(W)); ++k) {
      reinterpret_cast<W*>(out)[k] = read(reinterpret_cast<const W*>(p) + k);
    }
  }
}

template <class T, int V>
__device__ __forceinline__ void store(void* base, int i, const T (&in)[V]) {
  T* p = static_cast<T*>(base) + i;
  if constexpr (V == 1) {
    __stcs(p, in[0]);
  } else {
    using W = Wide<T, V>;
#pragma unroll
    for (int k = 0; k < static_cast<int>(V * sizeof(T) / sizeof(W)); ++k) {
      __stcs(reinterpret_cast<W*>(p) + k, reinterpret_cast<const W*>(in)[k]);
    }
  }
}

// ---- any storage, as fp32; which one is the same for the whole block ----
//
// Loading and decoding are apart: a decoded stream waits for its memory, and all streams' loads
// shall be under way before the first is waited for. In between, 16-bit values lie in the first
// half of the fp32 array.

__device__ __forceinline__ bool is_16_bit(Storage s) {
  return s != Storage::f32 && s != Storage::f64;
}

__device__ __forceinline__ bool is_stochastic(Storage s) {
  return s == Storage::bf16_stochastic || s == Storage::f16_stochastic;
}

__device__ __forceinline__ bool has_master(Storage s) {
  return s == Storage::bf16_master || s == Storage::f16_master;
}

template <int V>
__device__ __forceinline__ void fetch(const void* data, bool halves, int i, float (&out)[V]) {
  if (!halves) return load(data, i, out);
  alignas(16) Half h[V];
  load(data, i, h);
  memcpy(out, h, sizeof h);
}

template <int V>
__device__ __forceinline__ void decode_bf16(float (&x)[V]) {
  if constexpr (V == 1) {
    Half h;
    memcpy(&h, x, sizeof h);
    x[0] = from_bf16(h);
  } else {
    Bits32 two[V / 2];
    memcpy(two, x, sizeof two);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      x[k] = float_of(k % 2 == 0 ? two[k / 2] << 16 : two[k / 2] & 0xffff0000u);
    }
  }
}

template <int V>
__device__ __forceinline__ void decode_f16(float (&x)[V]) {
  Half h[V];
  memcpy(h, x, sizeof h);
#pragma unroll
  for (int k = 0; k < V; ++k) x[k] = from_f16(h[k]);
}

// A gradient or a state.
template <int V>
__device__ __forceinline__ void decode(Storage storage, float (&x)[V]) {
  if (storage == Storage::bf16_nearest || storage == Storage::bf16_stochastic) {
    decode_bf16(x);
  } else if (storage == Storage::f16_nearest) {
    decode_f16(x);
  }
}

// `rest` is of bf16_remainder alone.
template <int V>
__device__ __forceinline__ void fetch_param(const void* data, const void* low, Storage storage,
                                            int i, float (&x)[V], Half (&rest)[V]) {
  if (has_master(storage)) return load(low, i, x);
  fetch(data, is_16_bit(storage), i, x);
  if (storage == Storage::bf16_remainder) load(low, i, rest);
}

template <int V>
__device__ __forceinline__ void decode_param(Storage storage, float (&x)[V],
                                             const Half (&rest)[V]) {
  if (storage == Storage::bf16_remainder) {
    Half h[V];
    memcpy(h, x, sizeof h);
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = join_float(h[k], rest[k]);
  } else if (storage == Storage::f16_stochastic) {
    decode_f16(x);
  } else if (!has_master(storage)) {
    decode(storage, x);
  }
}

// Where a stream's random bits come from. first: of the chunk within its tensor.
struct Random {
  Bits64 key;
  Index first;

  __device__ __forceinline__ Bits32 operator()(int i, int k) const {
    const Index at = first + i;
    const Bits32 lane = static_cast<Bits32>(at % cpu::kBlock) + k;
    return lane_bits(block_key(key, static_cast<Bits64>(at / cpu::kBlock)), lane);
  }
};

template <int V, class Encode>
__device__ __forceinline__ void store_encoded(void* data, int i, const float (&in)[V],
                                              Encode encode) {
  alignas(16) Half h[V];
#pragma unroll
  for (int k = 0; k < V; ++k) h[k] = encode(in[k], k);
  store(data, i, h);
}

// Two at a time where the GPU can; a NaN may become another one.
template <int V>
__device__ __forceinline__ void store_bf16_nearest(void* data, int i, const float (&in)[V]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (V % 2 == 0) {
    alignas(16) Half h[V];
#pragma unroll
    for (int k = 0; k < V; k += 2) {
      Bits32 both;
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(in[k + 1]), "f"(in[k]));
      memcpy(h + k, &both, sizeof both);
    }
    return store(data, i, h);
  }
#endif
  store_encoded(data, i, in, [](float x, int) { return to_bf16_nearest(x); });
}

template <int V>
__device__ __forceinline__ void store_bf16(void* data, bool stochastic, int i, const Random& random,
                                           const float (&in)[V]) {
  if (stochastic) {
    store_encoded(data, i, in, [&](float x, int k) { return to_bf16_stochastic(x, random(i, k)); });
  } else {
    store_bf16_nearest(data, i, in);
  }
}

template <int V>
__device__ __forceinline__ void store_state(void* data, Storage storage, int i,
                                            const Random& random, const float (&in)[V]) {
  if (storage == Storage::f32) return store(data, i, in);
  store_bf16(data, storage == Storage::bf16_stochastic, i, random, in);
}

template <int V>
__device__ __forceinline__ void store_param(void* data, void* low, Storage storage, int i,
                                            const Random& random, const float (&in)[V]) {
  if (has_master(storage)) store(low, i, in);
  switch (storage) {
    case Storage::f32:
      return store(data, i, in);
    case Storage::bf16_remainder: {
      alignas(16) Half rest[V];
#pragma unroll
      for (int k = 0; k < V; ++k) rest[k] = split_float(in[k]).remainder;
      store(low, i, rest);
      return store_encoded(data, i, in, [](float x, int) { return split_float(x).bf16; });
    }
    case Storage::f16_stochastic:
      return store_encoded(data, i, in,
                           [&](float x, int k) { return to_f16_stochastic(x, random(i, k)); });
    case Storage::f16_nearest:
    case Storage::f16_master:
      return store_encoded(data, i, in, [](float x, int) { return to_f16_nearest(x); });
    default:
      return store_bf16(data, storage == Storage::bf16_stochastic, i, random, in);
  }
}

// Of an element that is not quantised.
__device__ __forceinline__ int bytes_of(Storage s) { return static_cast<int>(bytes_for(s, 1)); }

__device__ __forceinline__ void* advanced(void* p, Index bytes) {
  return static_cast<char*>(p) + bytes;
}

}  // namespace gallop::cuda
