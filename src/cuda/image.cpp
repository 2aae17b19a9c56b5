// SPDX-License-Identifier: MIT
// Kernels compiled by NVRTC, kept in the cache and loaded by CUDA's runtime.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "cuda/kernels.h"
#include "cuda/memory.h"
#include "cuda/runtime.h"
#include "gallop/error.h"
#include "jit/cache.h"
#include "jit/known.h"
#include "jit/library.h"
#include "jit/nvrtc.h"
#include "jit/unit.h"

namespace gallop::cuda {
namespace {

using Clock = std::chrono::steady_clock;

int architecture(int device) {
  int major = 0, minor = 0;
  const std::string doing = fmt::format("asking cuda:{}", device);
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), doing);
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), doing);
  return 10 * major + minor;
}

// An entry of the cache is the kernel's name, a zero, and the image.
const void* loaded(const std::string& entry) {
  const size_t end = entry.find('\0');
  cudaLibrary_t library = nullptr;
  check(cudaLibraryLoadData(&library, entry.data() + end + 1, nullptr, nullptr, 0, nullptr, nullptr,
                            0),
        "loading a kernel that was compiled");
  cudaKernel_t kernel = nullptr;
  check(cudaLibraryGetKernel(&kernel, library, entry.c_str()), "finding a kernel");
  return reinterpret_cast<const void*>(kernel);
}

}  // namespace

std::string describe_compiler() {
  try {
    return jit::nvrtc_identity();
  } catch (const Error& e) {
    return e.what();
  }
}

const void* load_kernel(const jit::Unit& unit, const std::string& kernel, int device) {
  static jit::Known<const void> known;
  const Clock::time_point begin = Clock::now();
  const int arch = architecture(device);
  const std::string key =
      jit::digest(fmt::format("{}\n{}\n{}\n{}", jit::nvrtc_identity(), arch, kernel, unit.text()));
  return known.get(key, !jit::looks_in_memory(), [&] {
    const jit::Cache cache = jit::Cache::of_user();
    const std::string name = key + ".gpu";
    std::optional<std::string> entry;
    if (jit::looks_on_disk()) entry = cache.read(name);
    const bool compiled = !entry;
    if (compiled) {
      const jit::GpuCode code = jit::compile_for_gpu(unit.text(), kernel, arch);
      entry = code.name + '\0' + code.image;
      cache.keep(name, *entry);
    }
    const void* function = loaded(*entry);
    jit::add_spent(std::chrono::duration<double>(Clock::now() - begin).count(), compiled);
    return function;
  });
}

}  // namespace gallop::cuda
