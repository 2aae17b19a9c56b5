// SPDX-License-Identifier: MIT
#include "bench/clocks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gallop::bench {

std::string clocks_text(const Machine& machine, const std::vector<Gpu>& gpus) {
  std::vector<std::string> parts;
  if (machine.cpu_mhz > 0) {
    const std::string& g = machine.governor;
    parts.push_back(
        fmt::format("CPU {} MHz{}", machine.cpu_mhz, g.empty() ? "" : fmt::format(" ({})", g)));
  }
  for (const Gpu& gpu : gpus) {
    if (gpu.sm_mhz == 0) continue;
    std::string& text = parts.emplace_back(fmt::format("GPU {}", gpu.sm_mhz));
    if (gpu.most_sm_mhz > 0) text += fmt::format(" of {}", gpu.most_sm_mhz);
    text += " MHz";
    if (gpu.memory_mhz > 0) text += fmt::format(", memory {} MHz", gpu.memory_mhz);
    if (!gpu.slowdown.empty()) text += ", " + gpu.slowdown;
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace gallop::bench
