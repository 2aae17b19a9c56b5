// SPDX-License-Identifier: MIT
// Kernels compiled at run time for the emulated GPU: by the system's C++ compiler.
#include <fmt/format.h>

#include "cuda/kernels.h"
#include "cuda/memory.h"
#include "jit/library.h"
#include "jit/unit.h"

namespace gallop::cuda {

std::string describe_compiler() { return "the C++ compiler, for the emulated GPU"; }

const void* load_kernel(const jit::Unit& unit, const std::string& kernel, int) {
  jit::Unit all;
  all.include("cuda_emulator/device.h");
  all.line(unit.text());
  all.function("const void* gallop_kernel()",
               fmt::format("return gallop::emulator::announced(&{});", kernel));
  using Find = const void*();
  return reinterpret_cast<Find*>(jit::load_function(
      all.text(), {"-std=c++20", "-O1", "-shared", "-fPIC", "-w", "-ffp-contract=off"},
      "gallop_kernel"))();
}

}  // namespace gallop::cuda
