// SPDX-License-Identifier: MIT
#include "jit/errors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace gallop::jit {
namespace {

TEST(Errors, OfGxx) {
  EXPECT_EQ(errors_in("mine.h: In function 'f':\n"
                      "mine.h:3:5: error: 'x' was not declared\n"
                      "    3 |     x;\n"
                      "      |     ^\n"
                      "gallop/core/traits.h:9:1: error: no match\n"
                      "    9 | y\n"
                      "mine.h:3:5: error: 'x' was not declared, again\n"
                      "mine.h:8:1: error: expected ';'\n"),
            "mine.h:3:5: error: 'x' was not declared\n"
            "    3 |     x;\n"
            "      |     ^\n"
            "mine.h:8:1: error: expected ';'");
}

TEST(Errors, OfNvrtc) {
  EXPECT_EQ(errors_in("gallop/core/rule.h(3): warning #177-D: never used\n"
                      "  int a;\n"
                      "\n"
                      "my rule.h(31): error: identifier \"momentun\" is undefined\n"
                      "      momentun = 1;\n"
                      "      ^\n"
                      "\n"
                      "1 error detected in the compilation of \"rule.cu\".\n"),
            "my rule.h(31): error: identifier \"momentun\" is undefined\n"
            "      momentun = 1;\n"
            "      ^");
}

TEST(Errors, AreFewAndTheRestIsCounted) {
  std::string output;
  for (int i = 1; i <= 8; ++i) output += fmt::format("a.h:{}:1: error: wrong\n", i);
  const std::string said = errors_in(output);
  EXPECT_NE(said.find("a.h:5:1"), std::string::npos);
  EXPECT_EQ(said.find("a.h:6:1"), std::string::npos);
  EXPECT_NE(said.find("(3 more errors)"), std::string::npos);
}

TEST(Errors, OfOurOwnHeadersComeWithHowOneGotThere) {
  EXPECT_EQ(errors_in("mine.h:2:3:   required from here\n"
                      "gallop/core/traits.h:9:1: error: no match\n"),
            "gallop/core/traits.h:9:1: error: no match\n"
            "mine.h:2:3:   required from here");
  EXPECT_EQ(errors_in(""), "");
  EXPECT_EQ(errors_in("c++: out of memory\n"), "c++: out of memory");
}

}  // namespace
}  // namespace gallop::jit
