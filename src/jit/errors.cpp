// SPDX-License-Identifier: MIT
#include "jit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <set>
#include <vector>

namespace gallop::jit {
namespace {

constexpr size_t kMostErrors = 5, kMostLines = 24;

// An error and what follows it up to the next message: the line it points at.
struct Message {
  std::string place, text;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

// g++ and clang++: FILE:LINE:COLUMN: error: ...; NVRTC: FILE(LINE): error: ...
std::string place_of_error(const std::string& line) {
  static const std::regex form("^([^ ].*(?::[0-9]+|\\([0-9]+\\))): (?:catastrophic |fatal )?error");
  std::smatch found;
  return std::regex_search(line, found, form) ? found[1].str() : "";
}

std::vector<Message> errors_of(const std::vector<std::string>& lines) {
  std::vector<Message> out;
  std::set<std::string> places;
  bool taking = false;
  for (const std::string& line : lines) {
    const std::string place = place_of_error(line);
    if (!place.empty()) {
      const bool theirs = !place.starts_with("gallop/");  // our headers are called so
      taking = theirs && places.insert(place).second;
      if (taking) out.push_back({place, line});
    } else if (taking && !line.empty() && line.front() == ' ') {
      out.back().text += "\n" + line;
    } else {
      taking = false;
    }
  }
  return out;
}

// Elements are no numbers to a compiler; what it says then is of little help.
std::string hint(const std::string& output) {
  const bool element = output.find("gallop::Bounded") != std::string::npos ||
                       output.find("gallop::cpu::Array") != std::string::npos;
  if (!element) return "";
  return "\n(elements take + - * / fma sqrt abs min max sign lerp and select, no if and no "
         "comparison: docs/own-rule.md)";
}

}  // namespace

std::string errors_in(const std::string& output) {
  const std::vector<std::string> lines = lines_of(output);
  const std::vector<Message> errors = errors_of(lines);
  std::string out;
  for (size_t i = 0; i < std::min(errors.size(), kMostErrors); ++i) {
    out += (i == 0 ? "" : "\n") + errors[i].text;
  }
  if (errors.size() > kMostErrors) {
    out += fmt::format("\n({} more errors)", errors.size() - kMostErrors);
  }
  if (!errors.empty()) return out + hint(output);
  const auto first = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
    return !place_of_error(line).empty();
  });
  // What stands before the first error says how the compiler got there.
  std::vector<std::string> all(first, lines.end());
  all.insert(all.end(), lines.begin(), first);
  all.resize(std::min(all.size(), kMostLines));
  for (const std::string& line : all) out += (out.empty() ? "" : "\n") + line;
  return out.empty() ? out : out + hint(output);
}

}  // namespace gallop::jit
