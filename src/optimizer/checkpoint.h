// SPDX-License-Identifier: MIT
// What a checkpoint holds of a parameter. The key scheme is documented in docs/checkpoints.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "optimizer/impl.h"

namespace gallop::checkpoint {

inline constexpr const char* kFormat = "gallop.optimizer";
inline constexpr const char* kVersion = "1";

struct Field {  // one tensor of a checkpoint and where it lives in memory
  std::string key;
  std::string dtype;
  std::vector<int64_t> shape;
  void* data;
  size_t bytes;
};

std::string key_of(const Slot& s, std::string_view what);
std::vector<Field> arrays_of(const Rule& rule, const Slot& s);  // states, master or remainder
std::vector<Field> scalars_of(const Rule& rule, Slot& s);       // its step and the rule's scalars

}  // namespace gallop::checkpoint
