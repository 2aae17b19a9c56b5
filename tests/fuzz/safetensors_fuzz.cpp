// SPDX-License-Identifier: MIT
// clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -DFMT_HEADER_ONLY -Iinclude -Isrc
//   tests/fuzz/safetensors_fuzz.cpp src/io/safetensors.cpp src/io/atomic_file.cpp
#include <cstddef>
#include <cstdint>
#include <span>

#include "gallop/error.h"
#include "io/safetensors.h"

namespace {

void require(bool held) {
  if (!held) __builtin_trap();
}

std::size_t expected_bytes(const gallop::io::TensorView& view) {
  std::size_t bytes = gallop::io::dtype_size(view.dtype);
  require(bytes != 0);
  for (const int64_t size : view.shape) {
    require(size >= 0);
    if (size == 0) return 0;
  }
  for (const int64_t size : view.shape) {
    require(!__builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes));
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const auto file = gallop::io::SafetensorsFile::parse(bytes, "fuzz");
    std::size_t covered = 0;
    std::size_t header = 0;
    for (unsigned i = 0; i < 8; ++i) header |= static_cast<std::size_t>(data[i]) << (8 * i);
    for (const auto& [name, view] : file.tensors()) {
      require(view.bytes == expected_bytes(view));
      require(view.data >= bytes.data() + 8 + header);
      require(view.data <= bytes.data() + size);
      require(view.bytes <= static_cast<std::size_t>(bytes.data() + size - view.data));
      require(file.find(name) == &view);
      covered += view.bytes;
    }
    require(8 + header + covered == size);  // with the bounds above: no holes, no trailing bytes
  } catch (const gallop::Error&) {
  }
  return 0;
}
