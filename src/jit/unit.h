// SPDX-License-Identifier: MIT
// Translation units in one piece, for compilers that see no include path: gallop's headers come
// from the library itself, a user's from beside the rule file. Lines keep their file and number.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gallop::jit {

// A rule's text, whether from a file or from the library.
struct RuleText {
  std::string name;    // of the rule: its file's
  std::string path;    // as messages show it
  std::string folder;  // where files it includes are looked for; empty: only in the library
  std::string text;
  std::string type;  // the struct
  int line = 0;      // where it begins
};

// Finds the struct; throws when there is none.
RuleText rule_text(std::string path, std::string folder, std::string text);
RuleText read_rule_file(const std::string& path);
// Of a rule of this library, or null.
const RuleText* built_in_rule(std::string_view name);

class Unit {
 public:
  Unit() = default;
  // Begins with a rule, and that it has what every rule has, in words.
  explicit Unit(const RuleText& rule);
  // A header of the library, by its path under src/. Files are included once.
  void include(const std::string& header);
  void line(std::string_view text);
  // What a loader finds by its name.
  void function(std::string_view signature, std::string_view body);

  const std::string& text() const { return text_; }

 private:
  void add(const std::string& shown, const std::string& folder, std::string_view text);

  std::string text_;
  std::map<std::string, bool> included_;
};

}  // namespace gallop::jit
