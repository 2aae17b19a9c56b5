// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#include "core/pages.h"
#include "gallop/optimizer.h"

namespace gallop {

// A zeroed block for optimizer state.
class Memory {
 public:
  Memory() = default;
  Memory(size_t bytes, const Allocator& allocator, Device device);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  detail::Pages pages_;  // unless an allocator gave the memory
  Allocator allocator_;
  Device device_;
};

}  // namespace gallop
