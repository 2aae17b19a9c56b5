// SPDX-License-Identifier: MIT
// Memory of one training step, planned before the first: a dry run says what is wanted from when to
// when, and every later run is given the same places.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/tensor.h"

namespace gallop::gpt {

enum class MemoryClass { parameters, gradients, state, activations, logits, workspace };
inline constexpr int kMemoryClasses = 6;
std::string_view to_string(MemoryClass);

// What a buffer takes: places begin at multiples of 256 bytes.
constexpr size_t whole_places(size_t bytes) { return (bytes + 255) / 256 * 256; }

struct Buffer {
  std::string name;
  MemoryClass cls;
  int64_t layer;  // -1: outside of the blocks
  size_t bytes;
  size_t offset = 0;
  int64_t first = 0, last = 0;  // moments: takes and gives are counted
};

// What one kind of run needs.
struct Plan {
  std::vector<Buffer> buffers;  // in the order in which they are taken
  size_t bytes = 0;             // all of them, where they overlap in time apart
  int64_t moments = 0;
};

// Gives every buffer a place so that no two that live at a time share a byte. The largest go first,
// each to the lowest place that is free.
void place(Plan& plan);

// Bytes of each class at the moment when most is in use.
std::array<size_t, kMemoryClasses> at_peak(const Plan& plan);

class Arena {
 public:
  // A run between plan and planned takes nothing: tensors it is given have no memory behind them.
  void plan(int kind);
  void planned();
  size_t bytes() const;  // the largest of all plans
  void set_memory(void* memory) { memory_ = static_cast<std::byte*>(memory); }

  void begin(int kind);
  Tensor take(std::string_view name, MemoryClass cls, int64_t layer, DType type, int64_t rows,
              int64_t columns);
  void give(Tensor& tensor);  // back; it is empty then

  bool planning() const { return planning_; }
  const Plan& of(int kind) const { return plans_.at(kind); }

 private:
  std::map<int, Plan> plans_;
  Plan* current_ = nullptr;
  bool planning_ = false;
  size_t next_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace gallop::gpt
