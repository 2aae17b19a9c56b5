// SPDX-License-Identifier: MIT
// CPUs by number, and who gets which.
#pragma once

#include <vector>

namespace gallop::lab {

std::vector<int> usable_cpus();  // of this process

// Those of one of several that share them; each has at least one.
std::vector<int> share_of(const std::vector<int>& cpus, int one, int of);

}  // namespace gallop::lab
