// SPDX-License-Identifier: MIT
#include "lab/row.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "gallop/error.h"

namespace gallop::lab {

Row& Row::set(std::string_view name, Value value) {
  const auto field = std::find_if(fields_.begin(), fields_.end(),
                                  [name](const Field& f) { return f.first == name; });
  if (field != fields_.end()) {
    field->second = std::move(value);
  } else {
    fields_.emplace_back(std::string(name), std::move(value));
  }
  return *this;
}

Row& Row::set(std::string_view name, std::string value) {
  return set(name, Value(std::move(value)));
}

Row& Row::set(std::string_view name, std::string_view value) {
  return set(name, Value(std::string(value)));
}

Row& Row::set(std::string_view name, const char* value) {
  return set(name, value == nullptr ? Value() : Value(std::string(value)));
}

Row& Row::end_config() {
  config_size_ = fields_.size();
  return *this;
}

Row Row::in_front(std::string_view name, Value value) const {
  Row out = *this;
  out.fields_.insert(out.fields_.begin(), Field(std::string(name), std::move(value)));
  ++out.config_size_;
  return out;
}

Row& Row::keep_samples(std::string_view name, std::vector<double> values) {
  samples_.emplace_back(std::string(name), std::move(values));
  return *this;
}

const Value* Row::find(std::string_view name) const {
  for (const auto& [field, value] : fields_) {
    if (field == name) return &value;
  }
  return nullptr;
}

void Row::throw_too_large(std::string_view name, uint64_t value) {
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("field '{}' got {}, expected an integer of at most {}", name, value, INT64_MAX));
}

std::vector<std::string> field_names(const Table& table) {
  std::vector<std::string> names;
  std::unordered_set<std::string_view> seen;
  for (const Row& row : table.rows) {
    for (const auto& [name, value] : row) {
      if (seen.insert(name).second) names.push_back(name);
    }
  }
  return names;
}

Table joined(const std::vector<Table>& tables) {
  Table all;
  for (const Table& t : tables) {
    if (all.title.empty()) all.title = t.title;
    all.rows.insert(all.rows.end(), t.rows.begin(), t.rows.end());
    all.notes.insert(all.notes.end(), t.notes.begin(), t.notes.end());
  }
  return all;
}

}  // namespace gallop::lab
