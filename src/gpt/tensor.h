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
  int64_t padded = 0;  // elements from row to row; 0: its columns

  explicit operator bool() const { return data != nullptr; }
  int64_t elements() const { return rows * columns; }
  int64_t stride() const { return padded > 0 ? padded : columns; }
  size_t bytes() const { return static_cast<size_t>(rows * stride()) * size_of(type); }
  Tensor rows_from(int64_t first, int64_t count) const {
    return {static_cast<std::byte*>(data) + static_cast<size_t>(first * stride()) * size_of(type),
            type, count, columns, padded};
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace gallop::gpt
