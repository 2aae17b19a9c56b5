// SPDX-License-Identifier: MIT
// Test data in every storage format, read back by plain scalar code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "gallop/optimizer.h"
#include "gallop/types.h"

namespace gallop::check {

double read_element(const void* data, DType type, int64_t i);
void write_element(void* data, DType type, int64_t i, double value);  // rounds to nearest

// Half the distance between neighbours of `type` around x; twice that bounds stochastic rounding.
double half_spacing(DType type, double x);

// An element of a state in any format, by its definition, in double.
double read_state(const StateView& v, int64_t i);
// How far a value in [-scale, scale] may be from what is stored of it, in a format that shares
// scales.
double stored_within(StateFormat format, bool nonneg, double x, double scale);

// Elements of one dtype where the device reaches them; unaligned: starts one element past a 64-byte
// boundary.
class Buffer {
 public:
  Buffer() = default;
  Buffer(DType type, int64_t n, bool unaligned = false, Device device = {});
  Buffer(const Buffer& other);
  Buffer(Buffer&&) = default;
  Buffer& operator=(Buffer other);
  void* data() { return bytes_.get() + offset_; }
  const void* data() const { return bytes_.get() + offset_; }
  int64_t size() const { return n_; }
  DType type() const { return type_; }
  double at(int64_t i) const { return read_element(data(), type_, i); }
  void set(int64_t i, double v) { write_element(data(), type_, i, v); }
  // Normally distributed values times scale, the same for the same seed in every format but for
  // rounding. The bytes around the elements are checked by guards_intact.
  void fill_normal(uint64_t seed, double scale);
  bool guards_intact() const { return !broken_guard(); }
  // The first byte around the elements that was written to, counted from the first element.
  std::optional<int64_t> broken_guard() const;

 private:
  DType type_ = DType::f32;
  int64_t n_ = 0;
  Device device_;
  size_t offset_ = 0, size_ = 0;
  std::shared_ptr<std::byte[]> bytes_;
};

}  // namespace gallop::check
