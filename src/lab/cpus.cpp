// SPDX-License-Identifier: MIT
#include "lab/cpus.h"

#include <sched.h>

#include <cstddef>

namespace gallop::lab {

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> out;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return out;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) out.push_back(cpu);
  }
  return out;
}

std::vector<int> share_of(const std::vector<int>& cpus, int one, int of) {
  if (cpus.empty()) return {};
  const size_t n = cpus.size(), count = static_cast<size_t>(of), at = static_cast<size_t>(one);
  if (n < count) return {cpus[at % n]};
  return {cpus.begin() + static_cast<std::ptrdiff_t>(n * at / count),
          cpus.begin() + static_cast<std::ptrdiff_t>(n * (at + 1) / count)};
}

}  // namespace gallop::lab
