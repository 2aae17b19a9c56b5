// SPDX-License-Identifier: MIT
// Which states of a rule are codes, where every state that may be is in the same of gallop's own
// formats.
#pragma once

#include "core/storage.h"
#include "core/traits.h"

namespace gallop::cuda {
namespace {

// Four: of 4 bits, not 8.
template <class R, unsigned Present, bool Four>
struct OwnFormats {
  static constexpr int kScaledBits = scaled_bits(Four ? Storage::q4 : Storage::q8);
  static constexpr int kScales = kBlock >> kScaledBits;  // of a block of 256 elements

  // Bit j: state j.
  static constexpr unsigned states_that(bool (*are)(const State&)) {
    unsigned which = 0;
    for (int j = 0; j < detail::kStates<R>; ++j)
      if ((Present >> j & 1) != 0 && are(R::states[j])) which |= 1u << j;
    return which;
  }
  static constexpr unsigned kCodes = states_that([](const State& s) { return !s.exact; });
  static constexpr unsigned kNonneg =
      states_that([](const State& s) { return s.sign == Sign::nonneg; });
  static constexpr bool is_code(int j) { return (kCodes >> j & 1) != 0; }
  static constexpr bool is_nonneg(int j) { return (kNonneg >> j & 1) != 0; }
  static constexpr Storage storage_of(int j) {
    if (!is_code(j)) return Storage::f32;
    if (Four) return is_nonneg(j) ? Storage::q4_nonneg : Storage::q4;
    return is_nonneg(j) ? Storage::q8_nonneg : Storage::q8;
  }
  // How many states below j are codes, or are not.
  static constexpr int place(int j) {
    int before = 0;
    for (int k = 0; k < j; ++k) before += (Present >> k & 1) != 0 && is_code(k) == is_code(j);
    return before;
  }
  static constexpr int count(bool codes) {
    int n = 0;
    for (int j = 0; j < detail::kStates<R>; ++j) {
      n += (Present >> j & 1) != 0 && is_code(j) == codes;
    }
    return n;
  }
};

}  // namespace
}  // namespace gallop::cuda
