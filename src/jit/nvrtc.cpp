// SPDX-License-Identifier: MIT
#include "jit/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <nvrtc.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "gallop/error.h"
#include "jit/errors.h"

namespace gallop::jit {
namespace {

struct Nvrtc {
  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcGetNumSupportedArchs) arch_count = nullptr;
  decltype(&nvrtcGetSupportedArchs) archs = nullptr;
  decltype(&nvrtcCreateProgram) create = nullptr;
  decltype(&nvrtcDestroyProgram) destroy = nullptr;
  decltype(&nvrtcAddNameExpression) add_name = nullptr;
  decltype(&nvrtcCompileProgram) compile = nullptr;
  decltype(&nvrtcGetProgramLogSize) log_size = nullptr;
  decltype(&nvrtcGetProgramLog) log = nullptr;
  decltype(&nvrtcGetLoweredName) lowered_name = nullptr;
  decltype(&nvrtcGetCUBINSize) cubin_size = nullptr;
  decltype(&nvrtcGetCUBIN) cubin = nullptr;
  decltype(&nvrtcGetPTXSize) ptx_size = nullptr;
  decltype(&nvrtcGetPTX) ptx = nullptr;
  decltype(&nvrtcGetErrorString) error = nullptr;
  int major = 0, minor = 0;

  Nvrtc() {
    void* library = open();
    const auto find = [&](auto*& to, const char* symbol) {
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(dlsym(library, symbol));
      if (to != nullptr) return;
      throw Error(ErrorCode::unsupported,
                  fmt::format("NVRTC lacks {}, expected a library of CUDA 12 or 13", symbol));
    };
    find(version, "nvrtcVersion");
    find(arch_count, "nvrtcGetNumSupportedArchs");
    find(archs, "nvrtcGetSupportedArchs");
    find(create, "nvrtcCreateProgram");
    find(destroy, "nvrtcDestroyProgram");
    find(add_name, "nvrtcAddNameExpression");
    find(compile, "nvrtcCompileProgram");
    find(log_size, "nvrtcGetProgramLogSize");
    find(log, "nvrtcGetProgramLog");
    find(lowered_name, "nvrtcGetLoweredName");
    find(cubin_size, "nvrtcGetCUBINSize");
    find(cubin, "nvrtcGetCUBIN");
    find(ptx_size, "nvrtcGetPTXSize");
    find(ptx, "nvrtcGetPTX");
    find(error, "nvrtcGetErrorString");
    version(&major, &minor);
  }

  static void* open() {
    const char* own = std::getenv("GALLOP_NVRTC");
    if (own != nullptr && *own != 0) {
      if (void* library = dlopen(own, RTLD_LAZY | RTLD_LOCAL)) return library;
      throw Error(
          ErrorCode::unsupported,
          fmt::format("GALLOP_NVRTC is '{}', expected the library NVRTC: {}", own, dlerror()));
    }
    std::vector<std::string> names;
    const std::string folders[] = {"", environment("CUDA_HOME") + "/lib64/",
                                   environment("CUDA_PATH") + "/lib64/", "/usr/local/cuda/lib64/"};
    for (const std::string& folder : folders) {
      if (folder == "/lib64/") continue;
      for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"}) names.push_back(folder + name);
    }
    for (const std::string& name : names) {
      if (void* library = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL)) return library;
    }
    throw Error(ErrorCode::unsupported,
                "rules cannot be compiled for GPUs here: there is no libnvrtc.so.13 or .12 and "
                "GALLOP_NVRTC names none; other modes than compiled do without");
  }
  static std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  }

  void check(nvrtcResult status, const char* doing) const {
    if (status == NVRTC_SUCCESS) return;
    throw Error(ErrorCode::device, fmt::format("{}: {}", doing, error(status)));
  }
};

const Nvrtc& nvrtc() {
  static const Nvrtc library;
  return library;
}

class Program {
 public:
  explicit Program(const std::string& text) {
    nvrtc().check(nvrtc().create(&program_, text.c_str(), "rule.cu", 0, nullptr, nullptr),
                  "NVRTC, beginning");
  }
  ~Program() { nvrtc().destroy(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  operator nvrtcProgram() const { return program_; }  // NOLINT(google-explicit-constructor)

  template <class Size, class Get>
  std::string read(Size size_of, Get get) const {
    size_t size = 0;
    nvrtc().check(size_of(program_, &size), "NVRTC, asking for a size");
    std::string out(size, '\0');
    nvrtc().check(get(program_, out.data()), "NVRTC, reading");
    return out;
  }

 private:
  nvrtcProgram program_ = nullptr;
};

}  // namespace

std::string nvrtc_identity() { return fmt::format("NVRTC {}.{}", nvrtc().major, nvrtc().minor); }

GpuCode compile_for_gpu(const std::string& text, const std::string& kernel, int arch) {
  const Nvrtc& n = nvrtc();
  int count = 0;
  n.check(n.arch_count(&count), "NVRTC, asking for architectures");
  std::vector<int> archs(static_cast<size_t>(count));
  n.check(n.archs(archs.data()), "NVRTC, asking for architectures");
  // A GPU that is newer than the compiler runs what its driver makes of PTX.
  const bool known = std::find(archs.begin(), archs.end(), arch) != archs.end();
  const int for_arch = known ? arch : *std::max_element(archs.begin(), archs.end());

  const Program program(text);
  n.check(n.add_name(program, kernel.c_str()), "NVRTC, naming a kernel");
  const std::string target = fmt::format("-arch={}_{}", known ? "sm" : "compute", for_arch);
  // As nvcc compiles the kernels that are linked in.
  const char* flags[] = {target.c_str(), "-std=c++20", "-fmad=false", "-default-device", "-w"};
  const nvrtcResult status = n.compile(program, std::size(flags), flags);
  if (status != NVRTC_SUCCESS) {
    std::string said = errors_in(program.read(n.log_size, n.log).c_str());
    if (said.empty()) said = fmt::format("NVRTC failed: {}", n.error(status));
    throw Error(ErrorCode::invalid_argument, said);
  }
  const char* name = nullptr;
  n.check(n.lowered_name(program, kernel.c_str(), &name), "NVRTC, finding a kernel");
  return {name, known ? program.read(n.cubin_size, n.cubin) : program.read(n.ptx_size, n.ptx)};
}

}  // namespace gallop::jit
