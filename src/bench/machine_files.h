// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace gallop::bench {

// What Linux tells about the machine in /proc, /sys and /etc. Nothing here throws for a file that
// is missing or odd: the answer is then empty or 0.
class MachineFiles {
 public:
  explicit MachineFiles(std::string root) : root_(std::move(root)) {}

  std::string cpu_name() const;
  int64_t cache_bytes(int level) const;  // data or unified cache of CPU 0
  int64_t memory_bytes() const;
  std::string os_name() const;
  std::string governor() const;
  int64_t cpu_mhz() const;     // now, of the fastest
  double cgroup_cpus() const;  // CPUs' worth of time the cgroups grant, infinite without a limit

 private:
  std::string text(const std::string& path) const;        // whole file
  std::string first_line(const std::string& path) const;  // without blanks around it
  double group_cpus(const std::string& controllers, const std::string& group) const;

  std::string root_;
};

}  // namespace gallop::bench
