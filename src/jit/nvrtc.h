// SPDX-License-Identifier: MIT
// NVIDIA's run-time compiler. The library is loaded when it is first needed: programs that compile
// nothing do not need it.
#pragma once

#include <string>

namespace gallop::jit {

struct GpuCode {
  std::string name;   // of the kernel, as loaders know it
  std::string image;  // for one architecture; or PTX, where NVRTC is older than the GPU
};

// Its version, and which library it is; throws when there is none.
std::string nvrtc_identity();

// The kernel that an expression names. arch: 90 is sm_90. Throws what the compiler says.
GpuCode compile_for_gpu(const std::string& text, const std::string& kernel, int arch);

}  // namespace gallop::jit
