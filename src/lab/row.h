// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace gallop::lab {

// One cell of a result; monostate is "no value".
using Value = std::variant<std::monostate, bool, int64_t, double, std::string>;

template <typename T>
concept Integer = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char>;

// One result: fields in the order they were first set. Names carry the unit ("median_ms").
class Row {
 public:
  using Field = std::pair<std::string, Value>;

  // Appends the field, or replaces its value in place when the name is already there.
  Row& set(std::string_view name, Value value);
  Row& set(std::string_view name, std::string value);
  Row& set(std::string_view name, std::string_view value);
  Row& set(std::string_view name, const char* value);  // nullptr is "no value"

  // Exact types only: a pointer or a char must not slip in as a bool or a number.
  template <std::same_as<bool> T>
  Row& set(std::string_view name, T value) {
    return set(name, Value(value));
  }
  template <std::floating_point T>
  Row& set(std::string_view name, T value) {
    return set(name, Value(static_cast<double>(value)));
  }
  template <Integer T>
  Row& set(std::string_view name, T value) {
    if (!std::in_range<int64_t>(value)) throw_too_large(name, static_cast<uint64_t>(value));
    return set(name, Value(static_cast<int64_t>(value)));
  }

  // What was set so far says what was measured, what comes says what was found. Rows with the same
  // configuration can be compared.
  Row& end_config();
  size_t config_size() const { return config_size_; }

  // The same with one more field of its configuration before the others.
  Row in_front(std::string_view name, Value value) const;

  // The single values behind a field that sums them up, in its unit.
  using Samples = std::pair<std::string, std::vector<double>>;
  Row& keep_samples(std::string_view name, std::vector<double> values);
  const std::vector<Samples>& samples() const { return samples_; }

  const Value* find(std::string_view name) const;  // nullptr when the row has no such field

  size_t size() const { return fields_.size(); }
  bool empty() const { return fields_.empty(); }
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

  friend bool operator==(const Row&, const Row&) = default;

 private:
  [[noreturn]] static void throw_too_large(std::string_view name, uint64_t value);

  std::vector<Field> fields_;
  size_t config_size_ = 0;
  std::vector<Samples> samples_;
};

struct Table {
  std::string title;
  std::vector<Row> rows;
  std::vector<std::string> notes;
  // The fields that table and markdown show, in this order; empty shows all. csv and json always
  // carry every field.
  std::vector<std::string> columns;
};

// Every field name of the rows in first-seen order.
std::vector<std::string> field_names(const Table& table);

// All rows in one table, for formats that have one.
Table joined(const std::vector<Table>& tables);

}  // namespace gallop::lab
