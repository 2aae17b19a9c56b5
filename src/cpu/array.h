// SPDX-License-Identifier: MIT
// Mode unfused: the same rule over whole arrays, where every operator makes one pass through memory
// and leaves a temporary, as an eager tensor library does.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "cpu/kernel.h"
#include "cpu/thread_pool.h"

namespace gallop::cpu {

// Memory of temporaries, kept from step to step: an eager library's allocator does the same.
class Scratch {
 public:
  struct Piece {
    void* data;
    size_t bytes;
  };
  Scratch() = default;
  ~Scratch() {
    for (const Piece& p : free_) std::free(p.data);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  Piece take(size_t bytes) {
    for (Piece& p : free_) {
      if (p.bytes < bytes) continue;
      const Piece found = std::exchange(p, free_.back());
      free_.pop_back();
      return found;
    }
    bytes = (bytes + 127) / 64 * 64;
    void* data = std::aligned_alloc(64, bytes);
    if (data == nullptr) throw std::bad_alloc();
    return {data, bytes};
  }
  void give(Piece p) { free_.push_back(p); }

 private:
  std::vector<Piece> free_;
};

// Runs passes over arrays of one length and lends temporaries for their results.
class ArrayEngine {
 public:
  ArrayEngine(ArrayOp op, Index n, size_t element_bytes, int threads, Scratch& scratch)
      : op_(op),
        n_(n),
        bytes_(static_cast<size_t>(n) * element_bytes),
        threads_(threads),
        scratch_(scratch) {}

  void pass(Op op, void* out, const Operand* in) const {
    auto share = [&](int i, int count) {
      const Index blocks = (n_ + kBlock - 1) / kBlock;
      const Index first = blocks * i / count * kBlock;
      const Index last = std::min(n_, blocks * (i + 1) / count * kBlock);
      if (first < last) op_(op, out, in, first, last - first);
    };
    ThreadPool::instance().run(threads_, share);
  }
  template <class T>
  std::shared_ptr<T> temporary() {
    const Scratch::Piece piece = scratch_.take(bytes_);
    return {static_cast<T*>(piece.data), [this, piece](T*) { scratch_.give(piece); }};
  }

 private:
  ArrayOp op_;
  Index n_;
  size_t bytes_;
  int threads_;
  Scratch& scratch_;
};

// A handle to an array, or to one value for all elements.
template <class T>
class Array {
 public:
  Array(T value = 0) : value_(value) {}  // NOLINT(google-explicit-constructor): rules write T(0)
  Array(ArrayEngine& engine, T* data) : engine_(&engine), data_(data, [](T*) {}) {}

  static Array result(Op op, std::initializer_list<Array> in) {
    Operand operands[3] = {};
    ArrayEngine* engine = nullptr;
    int i = 0;
    for (const Array& a : in) {
      operands[i++] = {a.data_.get(), static_cast<double>(a.value_)};
      if (a.engine_ != nullptr) engine = a.engine_;
    }
    // A product of literals and coefficients, such as the zero difference of adan's first step.
    if (engine == nullptr) return folded(op, operands);
    Array out;
    out.engine_ = engine;
    out.data_ = engine->template temporary<T>();
    engine->pass(op, out.data_.get(), operands);
    return out;
  }
  void copy_to(ArrayEngine& engine, T* out) const {
    const Operand from{data_.get(), static_cast<double>(value_)};
    engine.pass(Op::copy, out, &from);
  }

 private:
  static T folded(Op op, const Operand* in) {
    const T a = static_cast<T>(in[0].value), b = static_cast<T>(in[1].value);
    switch (op) {
      case Op::add:
        return a + b;
      case Op::sub:
        return a - b;
      case Op::mul:
        return a * b;
      case Op::div:
        return a / b;
      case Op::fma:
        return gallop::fma(a, b, static_cast<T>(in[2].value));
      case Op::sqrt:
        return gallop::sqrt(a);
      case Op::abs:
        return gallop::abs(a);
      case Op::sign:
        return gallop::sign(a);
      case Op::neg:
        return -a;
      case Op::min:
        return gallop::min(a, b);
      case Op::max:
        return gallop::max(a, b);
      case Op::copy:
        return a;
    }
    return a;
  }

  ArrayEngine* engine_ = nullptr;
  std::shared_ptr<T> data_;
  T value_ = 0;
};

#define GALLOP_ARRAY_BINARY(name, op)                                         \
  inline Array<float> name(const Array<float>& a, const Array<float>& b) {    \
    return Array<float>::result(Op::op, {a, b});                              \
  }                                                                           \
  inline Array<double> name(const Array<double>& a, const Array<double>& b) { \
    return Array<double>::result(Op::op, {a, b});                             \
  }
#define GALLOP_ARRAY_UNARY(name, op)                                                            \
  inline Array<float> name(const Array<float>& a) { return Array<float>::result(Op::op, {a}); } \
  inline Array<double> name(const Array<double>& a) { return Array<double>::result(Op::op, {a}); }

GALLOP_ARRAY_BINARY(operator+, add)
GALLOP_ARRAY_BINARY(operator-, sub)
GALLOP_ARRAY_BINARY(operator*, mul)
GALLOP_ARRAY_BINARY(operator/, div)
GALLOP_ARRAY_BINARY(min, min)
GALLOP_ARRAY_BINARY(max, max)
GALLOP_ARRAY_UNARY(sqrt, sqrt)
GALLOP_ARRAY_UNARY(abs, abs)
GALLOP_ARRAY_UNARY(sign, sign)
GALLOP_ARRAY_UNARY(operator-, neg)
#undef GALLOP_ARRAY_BINARY
#undef GALLOP_ARRAY_UNARY

inline Array<float> fma(const Array<float>& a, const Array<float>& b, const Array<float>& c) {
  return Array<float>::result(Op::fma, {a, b, c});
}
inline Array<double> fma(const Array<double>& a, const Array<double>& b, const Array<double>& c) {
  return Array<double>::result(Op::fma, {a, b, c});
}

}  // namespace gallop::cpu
