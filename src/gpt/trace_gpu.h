// SPDX-License-Identifier: MIT
// Which step, phase and layer a GPU's kernels belong to.
#pragma once

#include <string>
#include <vector>

#include "gpt/trace.h"

namespace gallop::gpt {

// Kernels that the host launched one by one are part of what it was at. Of a graph it only launched
// the whole: its kernels are found again in the same batch of the first step, which always goes
// kernel by kernel, by the order of their names.
std::vector<Kernel> place_kernels(std::vector<cuda::Activity> activities,
                                  const std::vector<Range>& ranges);

// Index in `in` of each of `names`, ascending, or -1: a longest common subsequence.
std::vector<int> align(const std::vector<std::string>& names, const std::vector<std::string>& in);

// "norm_rows" of "void gallop::norm_rows<float>(float*)"
std::string short_name(const std::string& kernel);

}  // namespace gallop::gpt
