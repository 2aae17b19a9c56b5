// SPDX-License-Identifier: MIT
#include "cuda/nvtx.h"

namespace gallop::cuda {

bool watched() { return false; }
void push_range(const std::string&) {}
void pop_range() {}

}  // namespace gallop::cuda
