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

}  // namespace gallop
