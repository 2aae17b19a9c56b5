// SPDX-License-Identifier: MIT
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "jit/rule_files.h"

namespace gallop::test {

struct Finished {
  int status;
  std::string output;
};

// gallop with these words, and an environment before it.
inline Finished program(const Folder& folder, const std::string& words,
                        const std::string& environment = "") {
  const std::string out = folder / "output";
  const std::string command = environment + " " GALLOP_PROGRAM " " + words + " >" + out + " 2>&1";
  const int status = std::system(command.c_str());
  return {WEXITSTATUS(status), contents(out)};
}

}  // namespace gallop::test
