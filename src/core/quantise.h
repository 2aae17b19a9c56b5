// SPDX-License-Identifier: MIT
// 8 and 4-bit codes of values whose block shares a scale, its largest magnitude: y = x / scale lies
// in [-1, 1]. All by arithmetic that vectorises, without tables.
//
// gallop's own: a signed value by its root, c = 127 sqrt(|y|); one that is never negative by its
// fourth root, c = 255 y^(1/4), and at least 1 unless it is 0. In between the codes a dither
// decides that takes turns from step to step: slow averages move although a step is less than a
// code, and errors cancel instead of adding up. 4 bits: the same with 7 and 15. fp8: e4m3 of 448 y,
// dithered too. bnb8: the dynamic maps of bitsandbytes, to the nearest.
#pragma once

#include "core/convert.h"
#include "core/storage.h"

namespace gallop {

using Code = unsigned char;

// ---- dither ----

// A pure function of seed, parameter, stream, step and element. In steps and in elements it is a
// sequence of fractions of irrational numbers: evenly spread over any stretch of either. In units
// of 2^-23; whole numbers are carried along above.
inline constexpr Bits32 kDitherStep = 0x4f1bbdu, kDitherElement = 0x609fd5u;

// Of a tensor in one step; id is a hash already.
GALLOP_FN Bits32 dither_of(Bits64 seed, Bits64 id, long long steps) {
  return static_cast<Bits32>(id ^ id >> 32) + 0x85ebca77u * static_cast<Bits32>(seed ^ seed >> 32) +
         kDitherStep * static_cast<Bits32>(static_cast<Bits64>(steps));
}
GALLOP_FN Bits32 dither_at(Bits32 start, Bits32 element) {
  return start + kDitherElement * element;
}
// Every state is one element ahead of the one before: a thread that has several elements of several
// states computes few different ones.
GALLOP_FN Bits32 dither_of_stream(Bits32 dither, Bits32 stream) {
  return dither_at(dither, stream);
}

// In (-1/2, 1/2), 1/4096 from either end: a value that is a code's stays that code, and one that
// moves by a thousandth of the way to the next still has its chance.
inline constexpr Bits32 kDitherOne = 0x3f800800u;
GALLOP_FN float offset_of(Bits32 dither, Bits32 one = kDitherOne) {
  return float_of((dither & 0x7ff000u) | one) - 1.5f;
}
// The same, but for the last bits, for vectors of a CPU, which convert numbers as fast as they add
// them: of a dither in units of 2^-32, less a half.
inline constexpr Bits32 kDitherElement32 = kDitherElement << 9;
GALLOP_FN Bits32 dither_less_half(Bits32 dither) { return dither << 9 ^ 0x80000000u; }
GALLOP_FN float offset_of_less_half(Bits32 dither) {
  return static_cast<float>(static_cast<int>(dither)) * ((1 - 0x1p-11f) * 0x1p-32f);
}

namespace detail {
// The nearest whole number of |x| < 2^22, in the low bits.
GALLOP_FN Bits32 whole_bits(float x) { return bits_of(x + 12582912.0f); }

// Roots, to some 2^-20: nothing beside a code's width. A CPU's divider is busy with the rule, so
// there a guess from the exponent is improved by a polynomial.
inline constexpr float kLeastRoot = 1e-30f;
#if defined(__CUDA_ARCH__)
GALLOP_FN float larger(float a, float b) { return ::fmaxf(a, b); }
GALLOP_FN float up_to_one(float x) { return __saturatef(x); }
GALLOP_FN float inverse_root(float y) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
  return r;
}
GALLOP_FN float root_plus(float y, float offset) { return fma(y, inverse_root(y), offset); }
GALLOP_FN float fourth_root(float y, float) { return inverse_root(inverse_root(y)); }
#else
GALLOP_FN float larger(float a, float b) { return a > b ? a : b; }
GALLOP_FN float up_to_one(float x) { return x < 1 ? x : 1; }
// z is near y^(-1/2); with d = y z^2 - 1, the root is y z (1 + d)^(-1/2). y is kLeastRoot or more.
GALLOP_FN float root_plus(float y, float offset) {
  const float z = float_of(0x5f314006u - (bits_of(y) >> 1)), yz = y * z, d = fma(yz, z, -1.0f);
  const float p = fma(fma(fma(-0.382546867f, d, 0.370118325f), d, -0.500093982f), d, 1.00000001f);
  return fma(yz, p, offset);
}
// The same with y^(-1/4): y z^3 (1 + d)^(-3/4), d = y z^4 - 1.
GALLOP_FN float fourth_root(float y, float least) {
  y = larger(y, least);
  const float z = float_of(0x4f506675u - (bits_of(y) >> 2)), square = z * z, ys = y * square;
  const float d = fma(ys, square, -1.0f);
  float p = fma(-1.32861386f, d, 0.246180013f);
  p = fma(fma(fma(p, d, -0.660385401f), d, 0.650717829f), d, -0.750252483f);
  return ys * z * fma(p, d, 0.999995628f);
}
#endif
GALLOP_FN float with_sign_of(float magnitude, float x) {
  return float_of(bits_of(magnitude) | (bits_of(x) & 0x80000000u));
}

// Most is the largest code: 127 or 7; 255 or 15.
template <int Most>
GALLOP_FN float square_of_code(float c) {
  const float r = c * (1.0f / Most);
  return r * abs(r);
}
template <int Most>
GALLOP_FN float fourth_power_of_code(float c) {
  const float r = c * (1.0f / Most), square = r * r;
  return square * square;
}
static_assert(127 * (1.0f / 127) == 1 && 7 * (1.0f / 7) == 1 && 255 * (1.0f / 255) == 1 &&
                  15 * (1.0f / 15) == 1 && 448 * (1.0f / 448) == 1,
              "the largest code must be the scale itself");
// Between c and c + 1 by where the value lies between their squares, since a signed average must
// not grow from rounding: c + 1 where x = Most^2 |y| is more than c^2 + u (2 c + 1) for a dither u
// in (0, 1). That is (c + u)^2 + u (1 - u), so the code is the whole number that follows
// sqrt(x - u (1 - u)) - u. offset: 1/2 - u.
template <int Most>
GALLOP_FN Bits32 code_of_square(float y, float offset, float least_root) {
  const float x = fma(abs(y), Most * Most, fma(offset, offset, -0.25f));
  return whole_bits(with_sign_of(root_plus(larger(x, least_root), offset), y));
}
// At least 1, unless y is 0 (or less than 2^-126).
template <int Most>
GALLOP_FN Bits32 code_of_fourth_power(float y, float offset, float least_root) {
  const float c = fma(fourth_root(y, least_root), Most, offset);
  return whole_bits(larger(c, up_to_one(y * 0x1p126f)));
}
}  // namespace detail

// ---- e4m3: 4 bits of exponent, 3 of mantissa, no infinity ----

GALLOP_FN float from_e4m3(Code c) {
  const Bits32 magnitude = c & 0x7fu;
  const float small = static_cast<float>(static_cast<int>(magnitude)) * 0x1p-9f;
  const float value = magnitude < 8 ? small : float_of((magnitude << 20) + (120u << 23));
  return float_of(bits_of(value) | (c & 0x80u) << 24);
}

// Of |x| <= 448. What is not 0 does not become it: a second moment is divided by.
GALLOP_FN Bits32 to_e4m3(float x, Bits32 dither) {
  const Bits32 magnitude = bits_of(x) & 0x7fffffffu;
  const Bits32 small = detail::whole_bits(
      fma(float_of(magnitude < (121u << 23) ? magnitude : 0u), 512.0f, offset_of(dither)));
  const Bits32 normal = (magnitude + (dither >> 3 & 0xffe00u) + 0x100u - (120u << 23)) >> 20;
  const Bits32 least = (small & 0xfu) == 0 && magnitude != 0 ? 1u : small & 0xfu;
  return (magnitude < (121u << 23) ? least : normal) | (bits_of(x) >> 24 & 0x80u);
}

// ---- bitsandbytes' dynamic maps ----
//
// Decade e of a signed map has 2^e codes of either sign, the middles of as many equal parts of
// [0.1, 1] times 10^(e - 6); counted through all decades, code a = 2^e + k stands for
// 10^(e - 6) (0.9 z - 0.8) with z = (a + 1/2) / 2^e. 0 is code 0, 1 is code 128, which has no
// negative. An unsigned map has twice as many codes a decade.

namespace detail {
// 10^e for e from 0 to 7.
GALLOP_FN float power_of_ten(Bits32 e) {
  return ((e & 1u) != 0 ? 10.0f : 1.0f) * ((e & 2u) != 0 ? 100.0f : 1.0f) *
         ((e & 4u) != 0 ? 1e4f : 1.0f);
}
// Of the code a >= 1, in units of 10^-6 (signed) or 10^-7.
GALLOP_FN float dynamic_value(Bits32 a) {
  const Bits32 middle = bits_of(static_cast<float>(static_cast<int>(a)) + 0.5f);
  const float z = float_of((middle & 0x7fffffu) | 0x3f800000u);
  return power_of_ten((middle >> 23) - 127u) * fma(z, 0.9f, -0.8f);
}
// Of y > 0 in the same units: the nearest code of decades First to 6 + First. The upper end of a
// decade is the middle between its last code and the first of the next.
struct Decade {
  float inverse, codes;  // 10^-e, 2^e
};
template <int E, int Last>
GALLOP_FN Decade decade_of(float y, Decade found) {
  if constexpr (E == Last) {
    return found;
  } else {
    constexpr float kTens[] = {1, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f};
    constexpr float kTop = kTens[E] * (1 + 0.9f / (1 << E)), kNext = 1 / kTens[E + 1];
    const bool above = y > kTop;
    return decade_of<E + 1, Last>(
        y, {above ? kNext : found.inverse, above ? static_cast<float>(2 << E) : found.codes});
  }
}
template <int First>
GALLOP_FN Bits32 dynamic_code(float y) {
  const Decade d = decade_of<First, First + 6>(y, {First == 0 ? 1.0f : 0.1f, 1 << First});
  const float z = fma(y * d.inverse, 1 / 0.9f, 0.8f / 0.9f);
  const float last = d.codes * 2 - 1;
  float a = z * d.codes;
  a = a > d.codes ? a : d.codes;
  a = a < last ? a : last;
  return static_cast<Bits32>(static_cast<int>(a));
}
}  // namespace detail

GALLOP_FN float from_dynamic(Code c) {
  const int at = static_cast<int>(c) - 127, a = at < 0 ? -at : at;
  const float value = detail::dynamic_value(static_cast<Bits32>(a)) * 1e-6f;
  const float magnitude = a == 0 ? 0.0f : a == 128 ? 1.0f : value;
  return at < 0 ? -magnitude : magnitude;
}
GALLOP_FN float from_dynamic_nonneg(Code c) {
  const float value = detail::dynamic_value(static_cast<Bits32>(c) + 1u) * 1e-7f;
  return c == 0 ? 0.0f : c == 255 ? 1.0f : value;
}

// The nearest code; a negative value never becomes zero.
GALLOP_FN Bits32 to_dynamic(float y) {
  const bool negative = (bits_of(y) & 0x80000000u) != 0;
  const float magnitude = abs(y);
  Bits32 a = detail::dynamic_code<0>(magnitude * 1e6f);
  a = magnitude < 0.275e-6f && !negative ? 0u : a;
  a = magnitude > 0.99648437f && !negative ? 128u : a;
  return negative ? 127u - a : 127u + a;
}
GALLOP_FN Bits32 to_dynamic_nonneg(float y) {
  const Bits32 a = detail::dynamic_code<1>(y * 1e7f) - 1u;
  return y < 1.625e-7f ? 0u : y > 0.9982422f ? 255u : a;
}

// ---- one value of any of these storages ----

// In [-1, 1]. Of 4-bit storages, c is the code in the low bits.
template <Storage S>
GALLOP_FN float decode_unit(Code c) {
  if constexpr (S == Storage::q8) {
    return detail::square_of_code<127>(static_cast<float>(static_cast<signed char>(c)));
  } else if constexpr (S == Storage::q8_nonneg) {
    return detail::fourth_power_of_code<255>(static_cast<float>(static_cast<int>(c)));
  } else if constexpr (S == Storage::q4) {
    return detail::square_of_code<7>(static_cast<float>((static_cast<int>(c) ^ 8) - 8));
  } else if constexpr (S == Storage::q4_nonneg) {
    return detail::fourth_power_of_code<15>(static_cast<float>(static_cast<int>(c)));
  } else if constexpr (S == Storage::bnb8) {
    return from_dynamic(c);
  } else if constexpr (S == Storage::bnb8_nonneg) {
    return from_dynamic_nonneg(c);
  } else {
    return from_e4m3(c) * (1.0f / 448);
  }
}

// Of gallop's own formats: the code in the low 8 or 4 bits; what is above them is not zero.
// least_root: always the same, but where g++ knows it, it takes comparisons and choices instead of
// one maximum.
template <Storage S>
GALLOP_FN Bits32 encode_own(float y, float offset, float least_root = detail::kLeastRoot) {
  constexpr int kMost = S == Storage::q8 ? 127 : S == Storage::q4 ? 7 : is_4_bit(S) ? 15 : 255;
  if constexpr (S == Storage::q8 || S == Storage::q4) {
    return detail::code_of_square<kMost>(y, offset, least_root);
  } else {
    return detail::code_of_fourth_power<kMost>(y, offset, least_root);
  }
}
// The same of any.
template <Storage S>
GALLOP_FN Bits32 encode_unit(float y, Bits32 dither) {
  if constexpr (S == Storage::bnb8) {
    return to_dynamic(y);
  } else if constexpr (S == Storage::bnb8_nonneg) {
    return to_dynamic_nonneg(y);
  } else if constexpr (S == Storage::fp8) {
    return to_e4m3(y * 448.0f, dither);
  } else {
    return encode_own<S>(y, offset_of(dither));
  }
}

// What a block's values are multiplied with. A scale that is subnormal counts as zero.
inline constexpr Bits32 kLeastScale = 1u << 23, kNotFinite = 0x7f800000u;
GALLOP_FN bool is_finite(float x) { return (bits_of(x) & 0x7fffffffu) < kNotFinite; }
GALLOP_FN float inverse_of(float scale) {
#if defined(__CUDA_ARCH__)
  float inverse;
  asm("rcp.approx.f32 %0, %1;" : "=f"(inverse) : "f"(scale));
  return scale == 0 ? 0.0f : inverse;
#else
  return scale == 0 ? 0.0f : 1 / scale;
#endif
}
// Zero: a largest magnitude too small to be divided by.
GALLOP_FN float scale_of(Bits32 most) { return most < kLeastScale ? 0.0f : float_of(most); }

}  // namespace gallop
