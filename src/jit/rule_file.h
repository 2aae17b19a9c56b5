// SPDX-License-Identifier: MIT
// Rules from files, compiled at run time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jit/unit.h"
#include "optimizer/rule.h"

namespace gallop::jit {

// The rule in a file. It is known by its name from then on; a file that has changed since it was
// last loaded replaces what it held. Throws what the compiler says.
const Rule& load_rule(const std::string& path);

// Compiles or loads what load_rule() has, for measurements.
void describe_again(const Rule& rule);

// All its kernels for one instruction set.
const cpu::RuleKernels& cpu_kernels(const RuleText& rule, int isa);

// What a rule was compiled from; throws where that is not known.
const RuleText& text_of(const Rule& rule);

// Instruction-set flags of this build's kernels.
std::vector<std::string> kernel_flags(std::string_view isa);

}  // namespace gallop::jit
