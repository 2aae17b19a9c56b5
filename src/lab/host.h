// SPDX-License-Identifier: MIT
#pragma once

#include <unistd.h>

#include <string>

namespace gallop::lab {

inline std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace gallop::lab
