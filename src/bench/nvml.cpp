// SPDX-License-Identifier: MIT
#include "bench/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace gallop::bench {
namespace {

// The few NVML calls needed here, as its ABI has them; 0 is success.
using Device = void*;
struct DeviceMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
using Init = int();
using Shutdown = int();
using DriverVersion = int(char* text, unsigned int size);
using DeviceCount = int(unsigned int* count);
using DeviceByIndex = int(unsigned int index, Device* device);
using DeviceName = int(Device device, char* text, unsigned int size);
using DeviceMemoryInfo = int(Device device, DeviceMemory* memory);
using DeviceByBus = int(const char* bus, Device* device);
using DeviceClock = int(Device device, int clock, unsigned int* mhz);
using DeviceReasons = int(Device device, unsigned long long* reasons);
struct Utilisation {  // percent
  unsigned int gpu;
  unsigned int memory;
};
using DeviceUtilisation = int(Device device, Utilisation* now);
struct Process {
  unsigned int pid;
  unsigned long long used_bytes;
  unsigned int gpu_instance;
  unsigned int compute_instance;
};
using DeviceProcesses = int(Device device, unsigned int* count, Process* processes);
constexpr int kSmClock = 1, kMemoryClock = 2;
constexpr auto kEvery = std::chrono::milliseconds(50);
// How far behind utilisation is: an H200 has a new value every 200 ms, of what was before it.
constexpr auto kBehind = std::chrono::milliseconds(500);

class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    const auto init = load<Init>("nvmlInit_v2");
    started_ = init != nullptr && init() == 0;
  }
  ~Nvml() {
    if (started_) {
      if (const auto shutdown = load<Shutdown>("nvmlShutdown")) shutdown();
    }
    if (library_ != nullptr) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool started() const { return started_; }

  template <typename Function>
  Function* load(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library_, name));
  }

  // Calls the function if the library has it; true when it succeeded.
  template <typename Function, typename... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    const auto function = load<Function>(name);
    return function != nullptr && function(arguments...) == 0;
  }

 private:
  void* library_;
  bool started_ = false;
};

}  // namespace

std::vector<Gpu> find_gpus() {
  const Nvml nvml;
  std::vector<Gpu> gpus;
  unsigned int count = 0;
  if (!nvml.started() || !nvml.call<DeviceCount>("nvmlDeviceGetCount_v2", &count)) return gpus;

  std::array<char, 128> text{};
  std::string driver;
  if (nvml.call<DriverVersion>("nvmlSystemGetDriverVersion", text.data(), 127U)) {
    driver = text.data();
  }
  for (unsigned int i = 0; i < count; ++i) {
    Device device = nullptr;
    if (!nvml.call<DeviceByIndex>("nvmlDeviceGetHandleByIndex_v2", i, &device)) continue;
    Gpu gpu;
    gpu.name = "unnamed GPU";
    gpu.driver = driver;
    if (nvml.call<DeviceName>("nvmlDeviceGetName", device, text.data(), 127U)) {
      gpu.name = text.data();
    }
    DeviceMemory memory{};
    if (nvml.call<DeviceMemoryInfo>("nvmlDeviceGetMemoryInfo", device, &memory)) {
      gpu.memory_bytes = static_cast<int64_t>(memory.total);
    }
    nvml.call<DeviceClock>("nvmlDeviceGetClockInfo", device, kSmClock, &gpu.sm_mhz);
    nvml.call<DeviceClock>("nvmlDeviceGetMaxClockInfo", device, kSmClock, &gpu.most_sm_mhz);
    nvml.call<DeviceClock>("nvmlDeviceGetClockInfo", device, kMemoryClock, &gpu.memory_mhz);
    unsigned long long reasons = 0;
    if (nvml.call<DeviceReasons>("nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons)) {
      gpu.slowdown = slowdown_text(reasons);
    }
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

std::string slowdown_text(uint64_t reasons) {
  // Bits 0, 1, 4 and 8 are idleness, clocks set by a person, by a group of GPUs, by a display.
  constexpr std::pair<uint64_t, const char*> kNames[] = {{0x04, "power cap"},
                                                         {0x08, "hardware slowdown"},
                                                         {0x20, "heat"},
                                                         {0x40, "heat (hardware)"},
                                                         {0x80, "power brake"}};
  std::string out;
  for (const auto& [bit, name] : kNames) {
    if ((reasons & bit) == 0) continue;
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

std::optional<int64_t> used_bytes(const std::string& pci_bus_id) {
  const Nvml nvml;
  Device device = nullptr;
  DeviceMemory memory{};
  if (!nvml.started() ||
      !nvml.call<DeviceByBus>("nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.c_str(), &device) ||
      !nvml.call<DeviceMemoryInfo>("nvmlDeviceGetMemoryInfo", device, &memory)) {
    return {};
  }
  return static_cast<int64_t>(memory.used);
}

struct GpuWatch::Impl {
  Nvml nvml;
  Device device = nullptr;
  Seen seen;
  uint64_t reasons = 0;
  bool load = false;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  double busy_sum = 0;
  int busy_count = 0;
  std::mutex mutex;
  std::condition_variable ended;
  bool end = false;
  std::thread thread;

  void look() {
    unsigned int mhz = 0;
    unsigned long long now = 0;
    if (!nvml.call<DeviceClock>("nvmlDeviceGetClockInfo", device, kSmClock, &mhz)) return;
    seen.least_sm_mhz = seen.samples == 0 ? mhz : std::min(seen.least_sm_mhz, mhz);
    seen.most_sm_mhz = std::max(seen.most_sm_mhz, mhz);
    nvml.call<DeviceClock>("nvmlDeviceGetClockInfo", device, kMemoryClock, &seen.memory_mhz);
    if (nvml.call<DeviceReasons>("nvmlDeviceGetCurrentClocksThrottleReasons", device, &now)) {
      reasons |= now;
    }
    ++seen.samples;
    if (load) look_at_load();
  }
  void look_at_load() {
    Utilisation busy{};
    if (std::chrono::steady_clock::now() - begin >= kBehind &&
        nvml.call<DeviceUtilisation>("nvmlDeviceGetUtilizationRates", device, &busy)) {
      busy_sum += busy.gpu;
      ++busy_count;
    }
    std::array<Process, 256> all{};
    unsigned int count = all.size();
    if (!nvml.call<DeviceProcesses>("nvmlDeviceGetComputeRunningProcesses_v3", device, &count,
                                    all.data())) {
      return;
    }
    const auto mine = static_cast<unsigned int>(getpid());
    for (unsigned int i = 0; i < count; ++i) {
      constexpr unsigned long long kUnknown = ~0ULL;
      if (all[i].pid != mine || all[i].used_bytes == kUnknown) continue;
      seen.process_bytes =
          std::max(seen.process_bytes.value_or(0), static_cast<int64_t>(all[i].used_bytes));
    }
  }
  void watch() {
    std::unique_lock lock(mutex);
    do look();
    while (!ended.wait_for(lock, kEvery, [this] { return end; }));
  }
};

GpuWatch::GpuWatch(const std::string& pci_bus_id, bool load) : impl_(new Impl) {
  Impl& m = *impl_;
  m.load = load;
  if (!m.nvml.started() || !m.nvml.call<DeviceByBus>("nvmlDeviceGetHandleByPciBusId_v2",
                                                     pci_bus_id.c_str(), &m.device)) {
    return;
  }
  m.thread = std::thread([&m] { m.watch(); });
}

GpuWatch::~GpuWatch() { end(); }

GpuWatch::Seen GpuWatch::end() {
  Impl& m = *impl_;
  {
    const std::lock_guard lock(m.mutex);
    m.end = true;
  }
  m.ended.notify_all();
  if (m.thread.joinable()) m.thread.join();
  m.seen.slowdown = slowdown_text(m.reasons);
  if (m.busy_count > 0) m.seen.busy_percent = m.busy_sum / m.busy_count;
  return m.seen;
}

}  // namespace gallop::bench
