// SPDX-License-Identifier: MIT
// Reading rows back.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lab/row.h"

namespace gallop::lab {

inline std::optional<double> number(const Row& row, std::string_view name) {
  const Value* v = row.find(name);
  if (v == nullptr) return {};
  if (const auto* n = std::get_if<int64_t>(v)) return static_cast<double>(*n);
  if (const auto* n = std::get_if<double>(v)) return *n;
  return {};
}

// Of a text or a whole number; empty where there is none.
inline std::string text(const Row& row, std::string_view name) {
  const Value* v = row.find(name);
  if (v == nullptr) return "";
  if (const auto* n = std::get_if<int64_t>(v)) return std::to_string(*n);
  const auto* s = std::get_if<std::string>(v);
  return s == nullptr ? "" : *s;
}

// Two standard errors of the mean of `steps` totals, relative to it.
inline double noise(const Row& row) {
  return 2 * *number(row, "total_std_ms") / *number(row, "total_ms") /
         std::sqrt(*number(row, "steps"));
}

}  // namespace gallop::lab
