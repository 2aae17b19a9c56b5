// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace gallop::jit {

// What a compiler says of a user's files: its errors in them, each place once, the first on top,
// with the lines they point at. If there is none, all it says, the first error on top.
std::string errors_in(const std::string& output);

}  // namespace gallop::jit
