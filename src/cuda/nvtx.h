// SPDX-License-Identifier: MIT
// Names for what the host is at, as NVIDIA's tools show them (nsys, ncu).
#pragma once

#include <string>

namespace gallop::cuda {

bool watched();  // by such a tool; else nobody sees ranges
void push_range(const std::string& name);
void pop_range();

}  // namespace gallop::cuda
