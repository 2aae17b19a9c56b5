// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "gallop/types.h"

namespace gallop::gpt {

// A matrix in row-major order somewhere in the memory of whoever computes with it.
struct Tensor {
  void* data = nullptr;  // null: not there
  DType type = DType::f32;
  int64_t rows = 0, columns = 0;

  explicit operator bool() const { return data != nullptr; }
  int64_t elements() const { return rows * columns; }
  size_t bytes() const { return static_cast<size_t>(elements()) * size_of(type); }
  Tensor rows_from(int64_t first, int64_t count) const {
    return {static_cast<std::byte*>(data) + static_cast<size_t>(first * columns) * size_of(type),
            type, count, columns};
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace gallop::gpt
