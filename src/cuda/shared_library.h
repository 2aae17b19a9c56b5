// SPDX-License-Identifier: MIT
// A library of NVIDIA's that is loaded when it is first needed, so that programs without that need
// run where it is not.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <initializer_list>
#include <string>

#include "gallop/error.h"

namespace gallop::cuda {

class SharedLibrary {
 public:
  // The first of the names that is there; `need` says who wants it: "which tracing a GPU needs".
  SharedLibrary(std::initializer_list<std::string> names, const std::string& need)
      : name_(*names.begin()) {
    for (const std::string& name : names) {
      handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) return;
    }
    throw Error(ErrorCode::unsupported, fmt::format("{} was not found, {}", name_, need));
  }

  template <class F>
  void load(F*& to, const char* symbol) const {
    to = reinterpret_cast<F*>(dlsym(handle_, symbol));
    if (to != nullptr) return;
    throw Error(ErrorCode::unsupported, fmt::format("{} has no {}", name_, symbol));
  }

  const std::string& name() const { return name_; }

 private:
  std::string name_;
  void* handle_ = nullptr;  // never closed
};

}  // namespace gallop::cuda
