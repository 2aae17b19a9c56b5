// SPDX-License-Identifier: MIT
// Rule files for tests, and the program run in a process of its own.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "folder.h"
#include "gallop/gallop.h"
#include "jit/unit.h"

namespace gallop::test {

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

inline std::string write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
  return path;
}

inline std::string contents(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A rule of the library as a user's file, under another name and another struct's name.
inline std::string file_like(const Folder& folder, const std::string& rule,
                             const std::string& name) {
  const jit::RuleText& own = *jit::built_in_rule(rule);
  std::string text = replaced(own.text, "\"" + rule + "\"", "\"" + name + "\"");
  for (size_t at = 0; (at = text.find(own.type, at)) != std::string::npos; at += own.type.size()) {
    const bool begins = at == 0 || (std::isalnum(text[at - 1]) == 0 && text[at - 1] != '_');
    const char next = text[at + own.type.size()];
    if (begins && std::isalnum(next) == 0 && next != '_' && text.compare(at - 1, 1, "\"") != 0) {
      text.insert(at, "My");
      at += 2;
    }
  }
  return write(folder / (name + ".h"), text);
}

inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace gallop::test
