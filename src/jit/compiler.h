// SPDX-License-Identifier: MIT
// The system's C++ compiler.
#pragma once

#include <string>
#include <vector>

#include "jit/cache.h"

namespace gallop::jit {

struct Compiler {
  std::string path;
  std::string identity;  // changes when the compiler does
};

// GALLOP_CXX, or the first of c++, g++ and clang++ on PATH. Throws when there is none.
const Compiler& compiler();

// A shared library made of a text. Throws with what the compiler says of the user's file.
std::string compile_library(const Compiler& c, const std::vector<std::string>& flags,
                            const std::string& text);

}  // namespace gallop::jit
