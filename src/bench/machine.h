// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gallop::bench {

// Where a result was measured. Unknown texts are empty, unknown sizes 0.
struct Machine {
  std::string cpu;
  int logical_cpus = 0;    // online in the whole machine
  int available_cpus = 0;  // left to this process by its affinity and its cgroups' CPU quota
  int64_t l1d_bytes = 0;   // caches of one instance, as CPU 0 sees them
  int64_t l2_bytes = 0;
  int64_t l3_bytes = 0;
  int64_t memory_bytes = 0;
  std::string os;
  std::string kernel;
  std::string compiler;
  std::string flags_note;  // what this build was compiled for
  std::string governor;    // CPU frequency policy; often hidden in virtual machines
  int64_t cpu_mhz = 0;     // right now, of the CPU that runs fastest
};

// file_root is put before /proc, /sys and /etc, for tests.
Machine describe_machine(const std::string& file_root = "");

}  // namespace gallop::bench
