// SPDX-License-Identifier: MIT
#include <charconv>
#include <cmath>

#include "lab/report_formats.h"

namespace gallop::lab {
namespace {

constexpr std::string_view kEndOfLine = "\r\n";  // as RFC 4180 asks

std::string exact(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  char digits[32];
  const auto result = std::to_chars(digits, digits + sizeof digits, value);
  return std::string(digits, result.ptr);
}

std::string quote(std::string_view text) {
  // Quoting the empty text keeps it apart from a missing value.
  if (!text.empty() && text.find_first_of(",\"\r\n") == std::string_view::npos) {
    return std::string(text);
  }
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::string csv_value(const Value* value) {
  if (value == nullptr) return {};
  if (const auto* flag = std::get_if<bool>(value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(value)) return exact(*number);
  if (const auto* text = std::get_if<std::string>(value)) return quote(*text);
  return {};
}

}  // namespace

std::string render_csv(const Table& table) {
  // With no rows the wanted columns are all there is to tell about the fields.
  const std::vector<std::string> names = table.rows.empty() ? table.columns : field_names(table);
  if (names.empty()) return {};
  std::string out;
  for (const std::string& name : names) {
    if (!out.empty()) out += ',';
    out += quote(name);
  }
  out += kEndOfLine;
  for (const Row& row : table.rows) {
    std::string line;
    for (size_t i = 0; i < names.size(); ++i) {
      if (i > 0) line += ',';
      line += csv_value(row.find(names[i]));
    }
    // Readers skip blank lines, which would lose the row of a one-column file.
    out += line.empty() ? "\"\"" : line;
    out += kEndOfLine;
  }
  return out;
}

}  // namespace gallop::lab
