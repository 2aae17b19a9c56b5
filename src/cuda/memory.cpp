// SPDX-License-Identifier: MIT
#include "cuda/memory.h"

#include <fmt/format.h>

#include "cuda/common.h"
#include "cuda/runtime.h"
#include "gallop/error.h"

namespace gallop::cuda {
namespace {

[[noreturn]] void unsupported(const std::string& why) { throw Error(ErrorCode::unsupported, why); }

std::string version(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

}  // namespace

bool built() { return true; }

bool emulated() {
#if defined(GALLOP_EMULATED_CUDA)
  return true;
#else
  return false;
#endif
}

void check(cudaError_t status, const std::string& doing) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that is not of the device's own kind is forgotten
  throw Error(ErrorCode::device,
              fmt::format("{}: CUDA says '{}'", doing, cudaGetErrorString(status)));
}

DeviceScope::DeviceScope(int device) {
  check(cudaGetDevice(&before_), "asking for the current device");
  if (before_ != device) check(cudaSetDevice(device), fmt::format("choosing cuda:{}", device));
}

DeviceScope::~DeviceScope() { cudaSetDevice(before_); }

void require_device(int device) {
  int driver = 0, runtime = 0, count = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) unsupported(fmt::format("cuda:{}: this machine has no NVIDIA driver", device));
  if (driver / 1000 < runtime / 1000) {
    unsupported(fmt::format("cuda:{}: the driver is for CUDA {}, this build needs {} or later",
                            device, version(driver), version(runtime / 1000 * 1000)));
  }
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice) count = 0;
  if (status != cudaSuccess && status != cudaErrorNoDevice) {
    check(status, "counting the CUDA devices");
  }
  cudaGetLastError();
  if (device < 0 || device >= count) {
    unsupported(count == 0 ? fmt::format("cuda:{}: this machine has no CUDA device", device)
                           : fmt::format("cuda:{} does not exist, expected cuda:0 to cuda:{}",
                                         device, count - 1));
  }
}

static void check_allocated(cudaError_t status, int device, size_t bytes) {
  if (status != cudaErrorMemoryAllocation) {
    return check(status, fmt::format("allocating {} bytes", bytes));
  }
  cudaGetLastError();
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  throw Error(ErrorCode::out_of_memory,
              fmt::format("no memory for {} bytes on cuda:{}, which has {} free of {}", bytes,
                          device, free, total));
}

void* allocate(int device, size_t bytes) {
  const DeviceScope scope(device);
  void* memory = nullptr;
  check_allocated(cudaMalloc(&memory, bytes), device, bytes);
  check(cudaMemset(memory, 0, bytes), "zeroing optimizer state");
  return memory;
}

void* allocate_shared(int device, size_t bytes) {
  const DeviceScope scope(device);
  void* memory = nullptr;
  check_allocated(cudaMallocManaged(&memory, bytes), device, bytes);
  check(cudaMemset(memory, 0, bytes), "zeroing memory");
  check(cudaDeviceSynchronize(), "zeroing memory");
  return memory;
}

void release(int device, void* memory) noexcept {
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(device);
  cudaFree(memory);
  cudaSetDevice(before);
}

void copy_to_host(int device, void* to, const void* from, size_t bytes) {
  const DeviceScope scope(device);
  check(cudaDeviceSynchronize(), "waiting for the device");
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "copying from the device");
}

void copy_to_device(int device, void* to, const void* from, size_t bytes) {
  const DeviceScope scope(device);
  check(cudaDeviceSynchronize(), "waiting for the device");
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "copying to the device");
}

void zero(int device, void* memory, size_t bytes) {
  const DeviceScope scope(device);
  check(cudaDeviceSynchronize(), "waiting for the device");
  check(cudaMemset(memory, 0, bytes), "zeroing memory");
}

void synchronize(int device) {
  const DeviceScope scope(device);
  check(cudaDeviceSynchronize(), "waiting for the device");
}

void fill_masters(int device, const void* in, float* out, int64_t n, bool bf16) {
  const DeviceScope scope(device);
  check(cudaDeviceSynchronize(), "filling masters");  // what is read may be on its way, elsewhere
  check(launch_fill_masters(in, out, n, bf16, nullptr), "filling masters");
  check(cudaDeviceSynchronize(), "filling masters");
}

void require_reachable(int device, const void* memory, const std::string& what) {
  cudaPointerAttributes a{};
  const cudaError_t status = cudaPointerGetAttributes(&a, memory);
  cudaGetLastError();
  if (status == cudaSuccess && a.type == cudaMemoryTypeManaged) return;
  if (status == cudaSuccess && a.type == cudaMemoryTypeDevice && a.device == device) return;
  const std::string is =
      status != cudaSuccess || a.type == cudaMemoryTypeUnregistered || a.type == cudaMemoryTypeHost
          ? "host memory"
          : fmt::format("memory of cuda:{}", a.device);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} points to {}, expected memory of cuda:{}", what, is, device));
}

}  // namespace gallop::cuda
