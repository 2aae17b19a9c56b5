// SPDX-License-Identifier: MIT
#include "check/data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "check/reachable.h"
#include "core/convert.h"

namespace gallop::check {
namespace {

constexpr size_t kGuard = 64;
constexpr std::byte kGuardByte{0xa5};

template <class T>
T get(const void* data, int64_t i) {
  T x;
  std::memcpy(&x, static_cast<const T*>(data) + i, sizeof x);
  return x;
}
template <class T>
void put(void* data, int64_t i, T x) {
  std::memcpy(static_cast<T*>(data) + i, &x, sizeof x);
}

// Uniform in (0, 1), from a counter.
double uniform(uint64_t seed, uint64_t i) {
  return (static_cast<double>(combine(seed, i) >> 11) + 0.5) * 0x1p-53;
}

}  // namespace

double read_element(const void* data, DType type, int64_t i) {
  switch (type) {
    case DType::f32:
      return get<float>(data, i);
    case DType::f64:
      return get<double>(data, i);
    case DType::bf16:
      return from_bf16(get<Half>(data, i));
    case DType::f16:
      return from_f16(get<Half>(data, i));
  }
  return 0;
}

void write_element(void* data, DType type, int64_t i, double value) {
  switch (type) {
    case DType::f32:
      return put(data, i, static_cast<float>(value));
    case DType::f64:
      return put(data, i, value);
    case DType::bf16:
      return put(data, i, to_bf16_nearest(static_cast<float>(value)));
    case DType::f16:
      return put(data, i, to_f16_nearest(static_cast<float>(value)));
  }
}

double half_spacing(DType type, double x) {
  const int bits = type == DType::f64 ? 53 : type == DType::f32 ? 24 : type == DType::bf16 ? 8 : 11;
  const int lowest = type == DType::f64    ? -1074
                     : type == DType::f32  ? -149
                     : type == DType::bf16 ? -133
                                           : -24;
  const auto biased = static_cast<int>(__builtin_bit_cast(Bits64, x) >> 52 & 0x7ff);
  const int exponent = std::max(biased - 1023 - (bits - 1), lowest) - 1;
  if (exponent < -1022) return std::ldexp(1, exponent);
  return __builtin_bit_cast(double, static_cast<Bits64>(exponent + 1023) << 52);
}

Buffer::Buffer(DType type, int64_t n, bool unaligned, Device device)
    : type_(type),
      n_(n),
      device_(device),
      offset_(kGuard),
      size_(static_cast<size_t>(n) * size_of(type) + 3 * kGuard),
      bytes_(reachable_memory(device, size_)) {  // at a multiple of 64
  std::memset(bytes_.get(), static_cast<int>(kGuardByte), size_);
  if (unaligned) offset_ += size_of(type);
}

Buffer::Buffer(const Buffer& other)
    : type_(other.type_),
      n_(other.n_),
      device_(other.device_),
      offset_(other.offset_),
      size_(other.size_),
      bytes_(reachable_memory(device_, size_)) {
  std::memcpy(bytes_.get(), other.bytes_.get(), size_);
}

Buffer& Buffer::operator=(Buffer other) {
  std::swap(type_, other.type_);
  std::swap(n_, other.n_);
  std::swap(device_, other.device_);
  std::swap(offset_, other.offset_);
  std::swap(size_, other.size_);
  bytes_.swap(other.bytes_);
  return *this;
}

void Buffer::fill_normal(uint64_t seed, double scale) {
  // A prime period: no block, lane or thread boundary meets the same values twice.
  static const std::vector<double> normals = [] {
    std::vector<double> v(65521);
    for (size_t i = 0; i < v.size(); ++i) {
      const double radius = std::sqrt(-2 * std::log(uniform(0, 2 * i)));
      v[i] = radius * std::cos(6.283185307179586 * uniform(0, 2 * i + 1));
    }
    return v;
  }();
  // One period is converted; the rest is copies of it.
  const auto period = static_cast<int64_t>(normals.size());
  const auto start = static_cast<int64_t>(combine(seed, 0) % normals.size());
  for (int64_t i = 0; i < std::min(n_, period); ++i) {
    set(i, scale * normals[static_cast<size_t>((start + i) % period)]);
  }
  auto* bytes = static_cast<std::byte*>(data());
  const size_t width = size_of(type_);
  for (int64_t done = period; done < n_; done += period) {
    std::memcpy(bytes + static_cast<size_t>(done) * width, bytes,
                static_cast<size_t>(std::min(period, n_ - done)) * width);
  }
}

std::optional<int64_t> Buffer::broken_guard() const {
  const std::byte* begin = bytes_.get();
  const std::byte* first = begin + offset_;
  const std::byte* last = first + static_cast<size_t>(n_) * size_of(type_);
  for (const std::byte* b = begin; b < begin + size_; b = b + 1 == first ? last : b + 1) {
    if (*b != kGuardByte) return b - first;
  }
  return std::nullopt;
}

}  // namespace gallop::check
