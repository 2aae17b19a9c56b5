// SPDX-License-Identifier: MIT
// How launches find the C++ function behind a kernel's address.
#pragma once

#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>

namespace gallop::emulator {

// Of a block, as the largest that every GPU gives.
inline constexpr unsigned long kSharedBytes = 99 << 10;

// A kernel with copies of its arguments: what every thread of a launch calls.
using Call = std::function<void()>;
using Bind = Call (*)(const void* kernel, void** arguments);

__attribute__((visibility("default"))) void announce(const void* kernel, Bind bind);

template <class... A>
const void* announced(void (*kernel)(A...)) {
  const auto* address = reinterpret_cast<const void*>(kernel);
  announce(address, [](const void* k, void** arguments) -> Call {
    auto* f = reinterpret_cast<void (*)(A...)>(const_cast<void*>(k));
    return [&]<size_t... I>(std::index_sequence<I...>)->Call {
      return [f, values = std::tuple<A...>(*static_cast<A*>(arguments[I])...)] {
        std::apply(f, values);
      };
    }
    (std::index_sequence_for<A...>());
  });
  return address;
}

}  // namespace gallop::emulator
