// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace gallop::cuda {

// Throws gallop::Error with CUDA's words when a call failed.
void check(cudaError_t status, const std::string& doing);

// Makes a device the current one for the time of a scope.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
};

}  // namespace gallop::cuda
