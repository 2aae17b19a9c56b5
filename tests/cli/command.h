// SPDX-License-Identifier: MIT
// The command line, run in this process.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gallop/cli.h"

namespace gallop::test {

struct Ran {
  int exit_code;
  std::string out, errors;
};

inline Ran run(std::vector<std::string> words) {
  words.insert(words.begin(), "gallop");
  std::vector<char*> argv;
  argv.reserve(words.size());
  for (std::string& w : words) argv.push_back(w.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int exit_code = run_cli(static_cast<int>(argv.size()), argv.data());
  return {exit_code, testing::internal::GetCapturedStdout(),
          testing::internal::GetCapturedStderr()};
}

// One sentence that has this, and nothing else.
inline void expect_refused(const std::vector<std::string>& words, const std::string& part) {
  const Ran ran = run(words);
  EXPECT_NE(ran.exit_code, 0);
  EXPECT_THAT(ran.errors, testing::HasSubstr(part));
  EXPECT_EQ(std::count(ran.errors.begin(), ran.errors.end(), '\n'), 1) << ran.errors;
  EXPECT_EQ(ran.out, "");
}

}  // namespace gallop::test
