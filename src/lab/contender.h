// SPDX-License-Identifier: MIT
// An optimizer with a format of state, as people name it: lion, adamw:8bit.
#pragma once

#include <string>

namespace gallop::lab {

struct Contender {
  std::string name;  // "lion", "adamw 8bit"
  std::string optimizer, state = "fp32";
};

// NAME or NAME:STATE; throws Error where there is no such rule or format.
Contender parse_contender(const std::string& text);

}  // namespace gallop::lab
