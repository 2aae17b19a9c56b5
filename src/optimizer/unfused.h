// SPDX-License-Identifier: MIT
// Mode unfused on any device: a rule over whole arrays, operator by operator.
#pragma once

#include "optimizer/rule.h"

namespace gallop {

// What is the same for all elements: values, or where a GPU finds them.
template <class T>
struct UnfusedNumbers {
  cpu::Array<T> coef[detail::kMaxCoefs];
  // g -> clamp(g * scale, -limit, limit) * factor, as far as these are asked for
  bool scaled = false, clamped = false, factored = false;
  cpu::Array<T> scale, limit, factor;
};

template <class T>
cpu::Array<T> scaled_gradient(cpu::Array<T> g, const UnfusedNumbers<T>& numbers) {
  if (numbers.scaled) g = g * numbers.scale;
  if (numbers.clamped) g = max(min(g, numbers.limit), -numbers.limit);
  if (numbers.factored) g = g * numbers.factor;
  return g;
}

// data[0] is the parameter, data[1] the gradient or null, data[2 + j] state j or null. What the
// entry writes is left in data.
template <class T>
void update_arrays(const Rule& rule, int entry, cpu::ArrayEngine& engine, T* const* data,
                   const UnfusedNumbers<T>& numbers) {
  cpu::Array<T> arrays[2 + detail::kMaxStates];
  for (int i = 0; i < 2 + detail::kMaxStates; ++i) {
    if (data[i] != nullptr) arrays[i] = cpu::Array<T>(engine, data[i]);
  }
  if (data[1] != nullptr) arrays[1] = scaled_gradient(arrays[1], numbers);
  if constexpr (sizeof(T) == 8) {
    rule.unfused_f64(entry, arrays, numbers.coef);
  } else {
    rule.unfused_f32(entry, arrays, numbers.coef);
  }
  const unsigned writes = rule.entries[static_cast<size_t>(entry)].writes;
  if (writes & kWritesParam) arrays[0].copy_to(engine, data[0]);
  for (int j = 0; j < detail::kMaxStates; ++j) {
    if (data[2 + j] != nullptr && (writes >> j & 1)) arrays[2 + j].copy_to(engine, data[2 + j]);
  }
}

// The same for a pass of a rule with norms, with the numbers x that it is given; add_up(q, array)
// takes what sum q is of.
template <class T, class AddUp>
void pass_over_arrays(const Rule& rule, int pass, bool matrix, cpu::ArrayEngine& engine,
                      T* const* data, const UnfusedNumbers<T>& numbers,
                      const Seen<cpu::Array<T>>& x, AddUp add_up) {
  cpu::Array<T> arrays[2 + detail::kMaxStates], sums[detail::kMaxSums];
  for (int i = 0; i < 2 + detail::kMaxStates; ++i) {
    if (data[i] != nullptr) arrays[i] = cpu::Array<T>(engine, data[i]);
  }
  if (data[1] != nullptr) arrays[1] = scaled_gradient(arrays[1], numbers);
  if constexpr (sizeof(T) == 8) {
    rule.unfused_pass_f64(pass, matrix, arrays, numbers.coef, x, sums);
  } else {
    rule.unfused_pass_f32(pass, matrix, arrays, numbers.coef, x, sums);
  }
  for (size_t q = 0; q < rule.sums.size(); ++q) {
    const Sum& s = rule.sums[q];
    if ((s.passes >> pass & 1) == 0 || (s.over != Over::tensor && !matrix)) continue;
    const cpu::Temporary<T> summands(engine);
    sums[q].copy_to(engine, summands.get());
    add_up(static_cast<int>(q), summands.get());
  }
  const unsigned writes = rule.passes[static_cast<size_t>(pass)].writes;
  if (writes & kWritesParam) arrays[0].copy_to(engine, data[0]);
  for (int j = 0; j < detail::kMaxStates; ++j) {
    if (data[2 + j] != nullptr && (writes >> j & 1)) arrays[2 + j].copy_to(engine, data[2 + j]);
  }
}

}  // namespace gallop
