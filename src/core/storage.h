// SPDX-License-Identifier: MIT
// How values lie in memory.
#pragma once

#include "core/rule.h"

namespace gallop {

enum class Storage : unsigned char {
  f32,
  f64,
  bf16_nearest,
  bf16_stochastic,
  f16_nearest,
  f16_stochastic,
  // Beside the 16 bits: an fp32 master, or the 16-bit remainder.
  bf16_master,
  f16_master,
  bf16_remainder,
  // States in blocks that share a scale: see core/quantise.h.
  q8,
  q8_nonneg,
  bnb8,
  bnb8_nonneg,
  q4,
  q4_nonneg,
  fp8,
};
inline constexpr int kStorages = 16;

// Elements that share one call of a codec. Work is split at multiples of it from a tensor's start,
// and blocks that share a scale divide it.
inline constexpr int kBlock = 256;

GALLOP_FN constexpr bool is_quantised(Storage s) { return s >= Storage::q8; }
GALLOP_FN constexpr bool is_4_bit(Storage s) { return s == Storage::q4 || s == Storage::q4_nonneg; }
// gallop's own.
GALLOP_FN constexpr bool is_own(Storage s) {
  return s == Storage::q8 || s == Storage::q8_nonneg || is_4_bit(s);
}
GALLOP_FN constexpr bool is_bitsandbytes(Storage s) {
  return s == Storage::bnb8 || s == Storage::bnb8_nonneg;
}

// Elements that share a scale, an fp32: 2 to this power.
GALLOP_FN constexpr int scaled_bits(Storage s) { return is_4_bit(s) ? 7 : 8; }
GALLOP_FN constexpr int scaled_block(Storage s) { return 1 << scaled_bits(s); }

// Of n elements, scales left out; n may be a multiple of kBlock or the end of a tensor.
GALLOP_FN constexpr long long bytes_for(Storage s, long long n) {
  if (is_4_bit(s)) return (n + 1) / 2;
  return n * (is_quantised(s) ? 1 : s == Storage::f64 ? 8 : s == Storage::f32 ? 4 : 2);
}
GALLOP_FN constexpr long long scales_for(Storage s, long long n) {
  return is_quantised(s) ? (n + scaled_block(s) - 1) / scaled_block(s) : 0;
}
// Of a master or remainder.
GALLOP_FN constexpr long long low_bytes_for(Storage s, long long n) {
  return n * (s == Storage::bf16_remainder                            ? 2
              : s == Storage::bf16_master || s == Storage::f16_master ? 4
                                                                      : 0);
}

}  // namespace gallop
