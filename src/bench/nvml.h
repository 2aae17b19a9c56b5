// SPDX-License-Identifier: MIT
// What NVML tells about GPUs. It comes with the driver and is loaded at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gallop::bench {

struct Gpu {
  std::string name;
  int64_t memory_bytes = 0;
  std::string driver;
  unsigned sm_mhz = 0, most_sm_mhz = 0, memory_mhz = 0;  // now, and the most there is
  std::string slowdown;                                  // now: why it is held back, or empty
};

// Empty without NVML.
std::vector<Gpu> find_gpus();

// Why a GPU runs below its clocks, from NVML's bits, separated by commas; empty when nothing but
// idleness and settings hold it back.
std::string slowdown_text(uint64_t reasons);

// Taken of a GPU's memory, by all processes; nothing without NVML.
std::optional<int64_t> used_bytes(const std::string& pci_bus_id);

// Watches a GPU's clocks, and if asked how busy it is, from a thread of its own, from construction
// until end().
class GpuWatch {
 public:
  // As CUDA names the device.
  explicit GpuWatch(const std::string& pci_bus_id, bool load = false);
  ~GpuWatch();

  struct Seen {
    int samples = 0;  // 0: there is no NVML, and nothing is known
    unsigned least_sm_mhz = 0, most_sm_mhz = 0, memory_mhz = 0;
    std::string slowdown;  // empty: none
    // With load: the mean percent of time in which a kernel ran, from half a second after the
    // beginning on, and the most bytes that this process has; nothing where the driver does not
    // tell, as in some containers.
    std::optional<double> busy_percent;
    std::optional<int64_t> process_bytes;
  };
  Seen end();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gallop::bench
