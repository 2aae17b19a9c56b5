// SPDX-License-Identifier: MIT
// Replays recorded runs of other implementations.
#pragma once

#include <string>

#include "gallop/types.h"
#include "lab/row.h"

namespace gallop::check {

// One row per .safetensors file in dir, in name order: file, optimizer, status (pass, fail, skip),
// the largest errors, the tolerance, and for skip why. `only` is a regular expression searched in
// the optimizer that the file names.
lab::Table replay_goldens(const std::string& dir, const std::string& only, int threads,
                          Device device = {}, Mode mode = Mode::multi);

}  // namespace gallop::check
