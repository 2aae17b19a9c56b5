// SPDX-License-Identifier: MIT
#include "lab/report_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace gallop::lab {
namespace {

// Puts a comma after every third digit of the whole part of a plain decimal number.
std::string with_separators(std::string digits) {
  const size_t first = digits.starts_with('-') ? 1 : 0;
  const size_t point = std::min(digits.find('.'), digits.size());
  for (size_t at = point; at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string human_integer(int64_t value) {
  const std::string digits = fmt::format("{}", value);
  return value <= -10000 || value >= 10000 ? with_separators(digits) : digits;
}

std::string human_double(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (value == 0) return "0";
  const double size = std::fabs(value);
  // Plain decimals are easiest to compare, but not with a dozen zeros.
  if (size < 1e-4 || size >= 1e12) return fmt::format("{:.4g}", value);
  if (size >= 1000) {
    const std::string digits = fmt::format("{:.0f}", value);
    return size >= 9999.5 ? with_separators(digits) : digits;
  }
  const int decimals = std::max(1, 3 - static_cast<int>(std::floor(std::log10(size))));
  std::string digits = fmt::format("{:.{}f}", value, decimals);
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.ends_with('.')) digits.pop_back();
  return digits;
}

bool is_number(const Value& value) {
  return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
}

}  // namespace

std::string human_value(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "yes" : "no";
  if (const auto* integer = std::get_if<int64_t>(&value)) return human_integer(*integer);
  if (const auto* number = std::get_if<double>(&value)) return human_double(*number);
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr || text->empty() ? "-" : *text;
}

std::vector<Column> human_columns(const Table& table) {
  std::vector<Column> columns;
  for (const std::string& name : table.columns.empty() ? field_names(table) : table.columns) {
    Column column{.name = name, .numeric = false, .cells = {}};
    size_t values = 0;
    size_t numbers = 0;
    for (const Row& row : table.rows) {
      const Value* value = row.find(name);
      column.cells.push_back(value == nullptr ? "-" : human_value(*value));
      if (value == nullptr || std::holds_alternative<std::monostate>(*value)) continue;
      ++values;
      if (is_number(*value)) ++numbers;
    }
    column.numeric = values > 0 && numbers == values;
    columns.push_back(std::move(column));
  }
  return columns;
}

size_t text_width(std::string_view text) {
  // A code point is one byte that is no continuation byte (10xxxxxx).
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  }));
}

std::string pad(std::string_view text, size_t width, bool right_aligned) {
  const size_t used = text_width(text);
  const std::string spaces(width > used ? width - used : 0, ' ');
  return right_aligned ? spaces + std::string(text) : std::string(text) + spaces;
}

}  // namespace gallop::lab
