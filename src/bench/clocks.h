// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "bench/machine.h"
#include "bench/nvml.h"

namespace gallop::bench {

// "CPU 3391 MHz (performance); GPU 1755 of 1980 MHz, memory 3201 MHz, power cap", as far as it is
// known.
std::string clocks_text(const Machine& machine, const std::vector<Gpu>& gpus);

}  // namespace gallop::bench
