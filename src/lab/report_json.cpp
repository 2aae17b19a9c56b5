// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>

#include "lab/report_formats.h"

namespace gallop::lab {
namespace {

using Json = nlohmann::ordered_json;

// Doubles come out in digits that read back as the same value, NaN and infinity as null; bytes that
// are no UTF-8 become U+FFFD rather than an error at the end of a long run.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json to_json(const Value& value) {
  return std::visit(
      [](const auto& held) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>) {
          return nullptr;
        } else {
          return held;
        }
      },
      value);
}

std::string object(const Row& row) {
  std::string out = "{";
  for (const auto& [name, value] : row) {
    if (out.size() > 1) out += ", ";
    out += dump(name) + ": " + dump(to_json(value));
  }
  return out + '}';
}

// A list with one entry per line.
template <typename Entries, typename ToText>
std::string list(const Entries& entries, ToText to_text) {
  std::string out = "[";
  for (const auto& entry : entries) {
    out += out.size() > 1 ? ",\n    " : "\n    ";
    out += to_text(entry);
  }
  return out + (entries.empty() ? "]" : "\n  ]");
}

}  // namespace

std::string render_json(const Table& table) {
  std::string out = "{\n";
  if (!table.title.empty()) out += "  \"title\": " + dump(table.title) + ",\n";
  out += "  \"rows\": " + list(table.rows, object);
  if (!table.notes.empty()) {
    out +=
        ",\n  \"notes\": " + list(table.notes, [](const std::string& note) { return dump(note); });
  }
  return out + "\n}\n";
}

}  // namespace gallop::lab
