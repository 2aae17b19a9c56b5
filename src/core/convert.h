// SPDX-License-Identifier: MIT
// 16-bit floats to and from fp32, in integer arithmetic that every compiler vectorises and that
// never produces a subnormal fp32 (those cost a hundred cycles each on some CPUs).
#pragma once

#include "core/random.h"

namespace gallop {

using Half = unsigned short;

GALLOP_FN Bits32 bits_of(float x) { return __builtin_bit_cast(Bits32, x); }
GALLOP_FN float float_of(Bits32 u) { return __builtin_bit_cast(float, u); }
GALLOP_FN bool is_nan_bits(Bits32 u) { return (u & 0x7fffffffu) > 0x7f800000u; }

// ---- bf16: the upper half of an fp32 ----

GALLOP_FN float from_bf16(Half h) { return float_of(static_cast<Bits32>(h) << 16); }

GALLOP_FN Half to_bf16_nearest(float x) {
  const Bits32 u = bits_of(x);
  const Bits32 even = u + 0x7fffu + ((u >> 16) & 1u);
  return static_cast<Half>((is_nan_bits(u) ? (u | 0x400000u) : even) >> 16);
}

// Rounds away from zero with probability (dropped bits) / 65536.
GALLOP_FN Half to_bf16_stochastic(float x, Bits32 random16) {
  const Bits32 u = bits_of(x);
  return static_cast<Half>((is_nan_bits(u) ? (u | 0x400000u) : u + random16) >> 16);
}

// bf16 plus a signed 16-bit remainder: (bf16 << 16) + remainder is the fp32, bit for bit. A tie
// rounds away from zero: to even would leave two preimages for one pair.
struct SplitFloat {
  Half bf16;
  Half remainder;
};

GALLOP_FN SplitFloat split_float(float x) {
  const Bits32 raw = bits_of(x);
  const Bits32 u = is_nan_bits(raw) ? ((raw & 0xffff0000u) | 0x400000u) : raw;
  return {static_cast<Half>((u + 0x8000u) >> 16), static_cast<Half>(u)};
}

GALLOP_FN float join_float(Half bf16, Half remainder) {
  const Bits32 low = remainder;
  return float_of((static_cast<Bits32>(bf16) << 16) + low - ((low & 0x8000u) << 1));
}

// ---- fp16 ----

inline constexpr Bits32 kHalfMinNormal = 113u << 23;  // 2^-14
inline constexpr Bits32 kHalfOverflow = 143u << 23;   // 2^16, the first power beyond

GALLOP_FN float from_f16(Half h) {
  const Bits32 magnitude = (static_cast<Bits32>(h) & 0x7fffu) << 13;
  const Bits32 sign = (static_cast<Bits32>(h) & 0x8000u) << 16;
  const Bits32 normal = magnitude + (112u << 23);
  const Bits32 special = magnitude + (224u << 23);  // exponent 31 becomes 255
  const float small = float_of(magnitude + kHalfMinNormal) - float_of(kHalfMinNormal);
  Bits32 u = magnitude < (1u << 23) ? bits_of(small) : normal;
  u = magnitude >= (31u << 23) ? special : u;
  return float_of(u | sign);
}

namespace detail {
// Everything below 2^-14, inf, NaN and the sign are common to both roundings.
GALLOP_FN Half finish_f16(Bits32 u, Bits32 normal, Bits32 small) {
  const Bits32 magnitude = u & 0x7fffffffu;
  const Bits32 special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  Bits32 h = magnitude < kHalfMinNormal ? small : normal;
  h = magnitude >= kHalfOverflow ? special : h;
  return static_cast<Half>(h | ((u >> 16) & 0x8000u));
}
}  // namespace detail

GALLOP_FN Half to_f16_nearest(float x) {
  const Bits32 u = bits_of(x), magnitude = u & 0x7fffffffu;
  const Bits32 normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 0.5 leaves the value in units of 2^-24 in the low bits, rounded to even by the adder.
  const Bits32 small = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  return detail::finish_f16(u, normal, small);
}

GALLOP_FN Half to_f16_stochastic(float x, Bits32 random16) {
  const Bits32 u = bits_of(x), magnitude = u & 0x7fffffffu;
  const Bits32 normal = (magnitude - (112u << 23) + (random16 >> 3)) >> 13;
  const Bits32 clamped = magnitude < kHalfMinNormal ? magnitude : 0u;
  const float units = float_of(clamped) * 16777216.0f;  // in 2^-24, exact
  const int floor_units = static_cast<int>(units);
  const float rest = units - static_cast<float>(floor_units);
  const int up = rest * 65536.0f > static_cast<float>(random16) ? 1 : 0;
  return detail::finish_f16(u, normal, static_cast<Bits32>(floor_units + up));
}

}  // namespace gallop
