// SPDX-License-Identifier: MIT
#include <dlfcn.h>

#include <array>
#include <memory>

#include "bench/machine.h"

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
    Gpu gpu{.name = "unnamed GPU", .memory_bytes = 0, .driver = driver};
    if (nvml.call<DeviceName>("nvmlDeviceGetName", device, text.data(), 127U)) {
      gpu.name = text.data();
    }
    DeviceMemory memory{};
    if (nvml.call<DeviceMemoryInfo>("nvmlDeviceGetMemoryInfo", device, &memory)) {
      gpu.memory_bytes = static_cast<int64_t>(memory.total);
    }
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

}  // namespace gallop::bench
