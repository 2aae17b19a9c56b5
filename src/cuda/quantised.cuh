// SPDX-License-Identifier: MIT
// States in blocks that share a scale, by a warp at a time: V consecutive elements a lane, so that
// 32 V elements are a block or, of 4-bit codes with V = 8, two.
#pragma once

#include "core/quantise.h"
#include "cuda/step_data.h"

namespace gallop::cuda {

// Codes as they lie in memory: of 4 bits, in the lower half.
template <int V>
struct Codes {
  static constexpr int kWords = V / 4;
  Bits32 word[kWords];

  // Of 8-bit codes, or of 4-bit ones.
  __device__ __forceinline__ Code at8(int k) const {
    return static_cast<Code>(word[k / 4] >> k % 4 * 8);
  }
  __device__ __forceinline__ Code at4(int k) const {
    return static_cast<Code>(word[k / 8] >> k % 8 * 4 & 15u);
  }
};

// From element i on, a multiple of V.
template <int V>
__device__ __forceinline__ void fetch_codes(const void* data, bool four_bits, Index i,
                                            Codes<V>& c) {
  const char* at = static_cast<const char*>(data) + (four_bits ? i / 2 : i);
  if constexpr (V == 8) {
    if (four_bits) {
      c.word[0] = __ldcs(reinterpret_cast<const Bits32*>(at));
    } else {
      *reinterpret_cast<uint2*>(c.word) = __ldcs(reinterpret_cast<const uint2*>(at));
    }
  } else {
    c.word[0] = four_bits ? __ldcs(reinterpret_cast<const unsigned short*>(at))
                          : __ldcs(reinterpret_cast<const Bits32*>(at));
  }
}
// The first n < V of them; the others become zeros.
template <int V>
__device__ __forceinline__ void fetch_few_codes(const void* data, bool four_bits, Index i, int n,
                                                Codes<V>& c) {
  const Code* at = static_cast<const Code*>(data) + (four_bits ? i / 2 : i);
#pragma unroll
  for (int w = 0; w < Codes<V>::kWords; ++w) c.word[w] = 0;
  const int bytes = four_bits ? (n + 1) / 2 : n;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    if (k < bytes) c.word[k / 4] |= static_cast<Bits32>(at[k]) << k % 4 * 8;
  }
}

template <int V>
__device__ __forceinline__ void store_codes(void* data, bool four_bits, Index i, int n,
                                            const Codes<V>& c) {
  char* at = static_cast<char*>(data) + (four_bits ? i / 2 : i);
  if (n == V) {
    if constexpr (V == 8) {
      if (four_bits) {
        __stcs(reinterpret_cast<Bits32*>(at), c.word[0]);
      } else {
        __stcs(reinterpret_cast<uint2*>(at), *reinterpret_cast<const uint2*>(c.word));
      }
    } else if (four_bits) {
      __stcs(reinterpret_cast<unsigned short*>(at), static_cast<unsigned short>(c.word[0]));
    } else {
      __stcs(reinterpret_cast<Bits32*>(at), c.word[0]);
    }
    return;
  }
  const int bytes = four_bits ? (n + 1) / 2 : n;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    if (k < bytes) at[k] = static_cast<char>(c.word[k / 4] >> k % 4 * 8);
  }
}

// Calls f(integral constant) with the storage, which is the same for a whole warp.
template <class F>
__device__ __forceinline__ void with_codes_of(Storage s, F f) {
  switch (s) {
    case Storage::q8:
      return f(detail::Constant<Storage::q8>{});
    case Storage::q8_nonneg:
      return f(detail::Constant<Storage::q8_nonneg>{});
    case Storage::bnb8:
      return f(detail::Constant<Storage::bnb8>{});
    case Storage::bnb8_nonneg:
      return f(detail::Constant<Storage::bnb8_nonneg>{});
    case Storage::q4:
      return f(detail::Constant<Storage::q4>{});
    case Storage::q4_nonneg:
      return f(detail::Constant<Storage::q4_nonneg>{});
    default:
      return f(detail::Constant<Storage::fp8>{});
  }
}

template <int V>
__device__ __forceinline__ void decode_codes(Storage storage, const Codes<V>& c, float scale,
                                             float (&x)[V]) {
  with_codes_of(storage, [&](auto s) {
    constexpr Storage kStorage = s;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      x[k] = decode_unit<kStorage>(is_4_bit(kStorage) ? c.at4(k) : c.at8(k)) * scale;
    }
  });
}

// Four bytes from the low ones of a, b, c, d.
__device__ __forceinline__ Bits32 joined_bytes(Bits32 a, Bits32 b, Bits32 c, Bits32 d) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
#else
  return (a & 255u) | (b & 255u) << 8 | (c & 255u) << 16 | d << 24;
#endif
}

// dither: of the first of them.
template <int V>
__device__ __forceinline__ void encode_codes(Storage storage, const float (&x)[V], float scale,
                                             Bits32 dither, Codes<V>& out) {
  const float inverse = inverse_of(scale);
  with_codes_of(storage, [&](auto s) {
    constexpr Storage kStorage = s;
    Bits32 c[V];
#pragma unroll
    for (int k = 0; k < V; ++k) {
      c[k] = encode_unit<kStorage>(x[k] * inverse, dither_at(dither, static_cast<Bits32>(k)));
    }
    if constexpr (is_4_bit(kStorage)) {
      out.word[0] = 0;
#pragma unroll
      for (int k = 0; k < V; ++k) out.word[0] |= (c[k] & 15u) << 4 * k;
    } else {
#pragma unroll
      for (int w = 0; w < V / 4; ++w) {
        out.word[w] = joined_bytes(c[4 * w], c[4 * w + 1], c[4 * w + 2], c[4 * w + 3]);
      }
    }
  });
}

// ---- four at a time, of gallop's own formats ----

// A byte of a word or 4 bits of it, as a number: where they become the low bits of 2^23,
// subtracting that is all; for numbers with a sign, whose highest bit was flipped, a bit more.
template <bool Four, bool Nonneg>
__device__ __forceinline__ float number_at(Bits32 word, int k, Bits32 high) {
  constexpr float kZero = 8388608.0f + (Nonneg ? 0 : Four ? 8 : 128);
#if defined(__CUDA_ARCH__)
  const Bits32 bits = Four ? (word >> 4 * k & 15u) | high
                           : __byte_perm(word, high, 0x7440u | static_cast<unsigned>(k));
#else
  const Bits32 bits = (Four ? word >> 4 * k & 15u : word >> 8 * k & 255u) | high;
#endif
  return float_of(bits) - kZero;
}

// high: the bits of 2^23, which must not be known to the compiler: one operand of an instruction
// can be a constant, and another is.
template <bool Four, bool Nonneg>
__device__ __forceinline__ void decode_four(Bits32 word, float scale, Bits32 high, float (&x)[4]) {
  if (!Nonneg) word ^= Four ? 0x8888u : 0x80808080u;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float c = number_at<Four, Nonneg>(word, k, high);
    x[k] = (Nonneg                          ? detail::fourth_power_of_code < Four ? 15 : 255 > (c)
                                     : detail::square_of_code < Four ? 7
                                            : 127 > (c)) *
           scale;
  }
}

// As inverse_of, of a scale that is not subnormal.
__device__ __forceinline__ float inverse_of_scale(float scale) {
#if defined(__CUDA_ARCH__)
  const bool large = scale > 0x1p126f;  // its inverse is subnormal
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(large ? scale * 0.25f : scale));
  if (large) inverse *= 0.25f;
  return scale == 0 ? 0.0f : inverse;
#else
  return inverse_of(scale);
#endif
}

// offset: that of the first, the others follow.
template <bool Four, bool Nonneg>
__device__ __forceinline__ Bits32 encode_four(const float (&x)[4], float inverse,
                                              const float* offset) {
  constexpr Storage kStorage = Four ? (Nonneg ? Storage::q4_nonneg : Storage::q4)
                                    : (Nonneg ? Storage::q8_nonneg : Storage::q8);
  Bits32 c[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) c[k] = encode_own<kStorage>(x[k] * inverse, offset[k]);
  if (!Four) return joined_bytes(c[0], c[1], c[2], c[3]);
  const auto joined = [](Bits32 low, Bits32 above) { return (low & 15u) | (above << 4 & ~15u); };
  return joined_bytes(joined(c[0], c[1]), joined(c[2], c[3]), 0, 0);
}

// The largest magnitude of a lane's values, as bits; more than any number where one is not finite.
template <int V>
__device__ __forceinline__ Bits32 largest_of(const float (&x)[V]) {
  Bits32 most = 0;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const Bits32 magnitude = bits_of(x[k]) & 0x7fffffffu;
    most = magnitude > most ? magnitude : most;
  }
  return most;
}
__device__ __forceinline__ Bits32 warp_largest(Bits32 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(~0u, x);
#else
  for (unsigned lanes = 16; lanes > 0; lanes /= 2) {
    const Bits32 other = __shfl_xor_sync(~0u, x, lanes);
    x = other > x ? other : x;
  }
  return x;
#endif
}
// Of the half of the warp that the lane is in.
__device__ __forceinline__ Bits32 half_warp_largest(Bits32 x) {
#pragma unroll
  for (unsigned lanes = 8; lanes > 0; lanes /= 2) {
    const Bits32 other = __shfl_xor_sync(~0u, x, lanes);
    x = other > x ? other : x;
  }
  return x;
}

}  // namespace gallop::cuda
