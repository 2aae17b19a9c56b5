// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cpu/kernel.h"

namespace gallop::cpu {

// Instruction sets of this build, worst first; the index is used in Rule::kernels.
const std::vector<const Toolkit*>& toolkits();

bool runs_here(std::string_view isa);
std::vector<std::string> isas_here();

// The best that runs here, or the one GALLOP_FORCE_ISA names. Throws when that is unknown or
// cannot run here.
int choose_isa();
int isa_index(std::string_view isa);

}  // namespace gallop::cpu
