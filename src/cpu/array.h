// SPDX-License-Identifier: MIT
// Mode unfused: the same rule over whole arrays, where every operator makes one pass through memory
// and leaves a temporary, as an eager tensor library does.
#pragma once

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "cpu/kernel.h"
#include "cpu/thread_pool.h"

namespace gallop::cpu {

// Runs passes over arrays of one length and lends temporaries for their results.
class ArrayEngine {
 public:
  ArrayEngine(ArrayOp op, Index n, size_t element_bytes, int threads)
      : op_(op), n_(n), bytes_(static_cast<size_t>(n) * element_bytes), threads_(threads) {}
  ~ArrayEngine() {
    for (void* p : free_) std::free(p);
  }
  ArrayEngine(const ArrayEngine&) = delete;
  ArrayEngine& operator=(const ArrayEngine&) = delete;

  void pass(Op op, void* out, const Operand* in) const {
    auto share = [&](int i, int count) {
      const Index blocks = (n_ + kBlock - 1) / kBlock;
      const Index first = blocks * i / count * kBlock;
      const Index last = std::min(n_, blocks * (i + 1) / count * kBlock);
      if (first < last) op_(op, out, in, first, last - first);
    };
    ThreadPool::instance().run(threads_, share);
  }
  void* take() {
    if (free_.empty()) return std::aligned_alloc(64, (bytes_ + 127) / 64 * 64);
    void* p = free_.back();
    free_.pop_back();
    return p;
  }
  void give(void* p) { free_.push_back(p); }

 private:
  ArrayOp op_;
  Index n_;
  size_t bytes_;
  int threads_;
  std::vector<void*> free_;
};

// A handle to an array, or to one value for all elements.
template <class T>
class Array {
 public:
  Array(T value = 0) : value_(value) {}  // NOLINT(google-explicit-constructor): rules write T(0)
  Array(ArrayEngine& engine, T* data) : engine_(&engine), data_(data, [](T*) {}) {}

  static Array result(Op op, std::initializer_list<Array> in) {
    Operand operands[3];
    ArrayEngine* engine = nullptr;
    int i = 0;
    for (const Array& a : in) {
      operands[i++] = {a.data_.get(), static_cast<double>(a.value_)};
      if (a.engine_ != nullptr) engine = a.engine_;
    }
    Array out;
    out.engine_ = engine;
    out.data_ =
        std::shared_ptr<T>(static_cast<T*>(engine->take()), [engine](T* p) { engine->give(p); });
    engine->pass(op, out.data_.get(), operands);
    return out;
  }
  void copy_to(ArrayEngine& engine, T* out) const {
    const Operand from{data_.get(), static_cast<double>(value_)};
    engine.pass(Op::copy, out, &from);
  }

 private:
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
