// SPDX-License-Identifier: MIT
// A double that carries a bound on the error of the same computation done in a shorter format: the
// reference. Instantiating a rule with it gives every result together with how far a correct kernel
// may be from it, so that no tolerance is guessed.
#pragma once

#include "core/rule.h"

namespace gallop {

// What the short format's arithmetic is like.
struct Arithmetic {
  // 0 where it is double's, and only its arguments have errors of the short format.
  double own = 1;
  // What a quotient or a root has of it: more than 1 where they are not rounded correctly.
  double of_quotient = 1;
};

struct Bounded {
  double value;
  double error;  // in units of the short format's roundoff

  // A coefficient, rounded once to the short format.
  Bounded(double x = 0)
      : value(x), error(arithmetic.own * abs(x)) {}  // NOLINT(google-explicit-constructor)
  Bounded(double x, double e) : value(x), error(e) {}
  static Bounded exact(double x) { return {x, 0}; }
  // A result whose arguments' errors have made it this uncertain, itself rounded.
  static Bounded rounded(double x, double e) {
    return {x, e + arithmetic.own * abs(x) + e * kRoundoff};
  }

  // Of this thread; a rule compiled at run time has its own, and is told (see rule_data.h).
  static inline thread_local Arithmetic arithmetic;
  static Bounded quotient(double x, double e) {
    return rounded(x, e + (arithmetic.of_quotient - 1) * arithmetic.own * abs(x));
  }

  // Where an error decides between two outcomes, fp32's roundoff is assumed.
  static constexpr double kRoundoff = 1.0 / (1 << 24);
};

inline Bounded operator+(Bounded a, Bounded b) {
  return Bounded::rounded(a.value + b.value, a.error + b.error);
}
inline Bounded operator-(Bounded a) { return {-a.value, a.error}; }
inline Bounded operator-(Bounded a, Bounded b) { return a + -b; }
inline Bounded operator*(Bounded a, Bounded b) {
  // The last product matters where a value is zero by cancellation and then squared.
  return Bounded::rounded(a.value * b.value, abs(a.value) * b.error + abs(b.value) * a.error +
                                                 a.error * b.error * Bounded::kRoundoff);
}
inline Bounded operator/(Bounded a, Bounded b) {
  const double v = a.value / b.value;
  const double smallest = abs(b.value) - b.error * Bounded::kRoundoff;
  if (smallest <= 0 && b.error > 0) return {v, kInfinity};
  return Bounded::quotient(v, (a.error + abs(v) * b.error) / smallest);
}
// Covers one rounding (fused) and two (not fused).
inline Bounded fma(Bounded a, Bounded b, Bounded c) { return a * b + c; }
inline Bounded sqrt(Bounded a) {
  const double e = a.error * Bounded::kRoundoff;
  if (a.value < 0 && a.value + e >= 0) return {0, kInfinity};  // may be a root or a NaN
  const double v = sqrt(a.value), smallest = a.value - e;
  if (v == 0 && e == 0) return {0, 0};
  if (smallest <= 0) return Bounded::quotient(v, sqrt(a.value + e) / Bounded::kRoundoff);
  return Bounded::quotient(v, a.error / (v + sqrt(smallest)));
}
inline Bounded abs(Bounded a) { return {abs(a.value), a.error}; }
inline Bounded sign(Bounded a) {
  const bool sure = abs(a.value) > a.error * Bounded::kRoundoff || (a.value == 0 && a.error == 0);
  return {sign(a.value), sure ? 0 : 2 / Bounded::kRoundoff};
}
inline bool is_above(Bounded a, Bounded b) { return a.value > b.value; }
inline Bounded max(Bounded a, Bounded b) { return {max(a.value, b.value), max(a.error, b.error)}; }
inline Bounded min(Bounded a, Bounded b) { return {min(a.value, b.value), max(a.error, b.error)}; }

}  // namespace gallop
