// SPDX-License-Identifier: MIT
// The headers that kernels are made of, and the rules, as texts in the library.
#pragma once

#include <span>

namespace gallop::jit {

struct Source {
  const char* path;  // as it is included
  const char* text;
};

std::span<const Source> sources();  // generated: cmake/EmbedSources.cmake

}  // namespace gallop::jit
