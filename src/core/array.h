// SPDX-License-Identifier: MIT
// Mode unfused: the same rule over whole arrays, where every operator makes one pass through memory
// and leaves a temporary, as an eager tensor library does.
//
// Nothing of std: rules compiled at run time include it too (see src/jit).
#pragma once

#include "cpu/kernel.h"

namespace gallop::cpu {

// Runs passes over arrays of one length and lends temporaries for their results.
class ArrayEngine {
 public:
  virtual ~ArrayEngine() = default;
  virtual void pass(Op op, void* out, const Operand* in) = 0;
  // Memory for one array, kept from step to step: an eager library's allocator does the same.
  // It is lent until it was given back as often as it was taken and shared.
  virtual void* take() = 0;
  virtual void share(void* memory) = 0;
  virtual void give(void* memory) = 0;
};

// An array that is lent for as long as one of these holds it; or another's, or none.
template <class T>
class Temporary {
 public:
  Temporary() = default;
  explicit Temporary(ArrayEngine& engine)
      : engine_(&engine), data_(static_cast<T*>(engine.take())) {}
  static Temporary borrowed(T* data) {
    Temporary out;
    out.data_ = data;
    return out;
  }
  Temporary(const Temporary& other) : engine_(other.engine_), data_(other.data_) {
    if (engine_ != nullptr) engine_->share(data_);
  }
  Temporary(Temporary&& other) noexcept { swap(other); }
  Temporary& operator=(Temporary other) noexcept {
    swap(other);
    return *this;
  }
  ~Temporary() {
    if (engine_ != nullptr) engine_->give(data_);
  }
  T* get() const { return data_; }

 private:
  void swap(Temporary& other) noexcept {
    ArrayEngine* engine = engine_;
    T* data = data_;
    engine_ = other.engine_;
    data_ = other.data_;
    other.engine_ = engine;
    other.data_ = data;
  }

  ArrayEngine* engine_ = nullptr;
  T* data_ = nullptr;
};

// A handle to an array, or to one value for all elements: known here, or read from where the passes
// run when they do.
template <class T>
class Array {
 public:
  Array(T value = 0) : value_(value) {}  // NOLINT(google-explicit-constructor): rules write T(0)
  Array(ArrayEngine& engine, T* data) : engine_(&engine), data_(Temporary<T>::borrowed(data)) {}
  static Array scalar(ArrayEngine& engine, const double* where) {
    Array out;
    out.engine_ = &engine;
    out.scalar_ = where;
    return out;
  }

  template <class... A>
  static Array result(Op op, const A&... in) {
    const Operand operands[3] = {in.operand()...};
    ArrayEngine* engine = nullptr;
    ((engine = in.engine_ != nullptr ? in.engine_ : engine), ...);
    // A product of literals and coefficients, such as the zero difference of adan's first step.
    if (engine == nullptr) return folded(op, operands);
    Array out;
    out.engine_ = engine;
    out.data_ = Temporary<T>(*engine);
    engine->pass(op, out.data_.get(), operands);
    return out;
  }
  void copy_to(ArrayEngine& engine, T* out) const {
    const Operand from = operand();
    engine.pass(Op::copy, out, &from);
  }
  // The first where condition, which is one value for all elements, is not zero.
  static Array choice(const Array& condition, const Array& yes, const Array& no) {
    if (condition.engine_ == nullptr) return condition.value_ != 0 ? yes : no;
    return result(Op::select, condition, yes, no);
  }

 private:
  Operand operand() const { return {data_.get(), static_cast<double>(value_), scalar_}; }

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
      case Op::select:
      case Op::copy:
        return a;
    }
    return a;
  }

  ArrayEngine* engine_ = nullptr;
  Temporary<T> data_;
  const double* scalar_ = nullptr;
  T value_ = 0;
};

#define GALLOP_ARRAY_BINARY(name, op)                                         \
  inline Array<float> name(const Array<float>& a, const Array<float>& b) {    \
    return Array<float>::result(Op::op, a, b);                                \
  }                                                                           \
  inline Array<double> name(const Array<double>& a, const Array<double>& b) { \
    return Array<double>::result(Op::op, a, b);                               \
  }
#define GALLOP_ARRAY_UNARY(name, op)                                                          \
  inline Array<float> name(const Array<float>& a) { return Array<float>::result(Op::op, a); } \
  inline Array<double> name(const Array<double>& a) { return Array<double>::result(Op::op, a); }

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
  return Array<float>::result(Op::fma, a, b, c);
}
inline Array<double> fma(const Array<double>& a, const Array<double>& b, const Array<double>& c) {
  return Array<double>::result(Op::fma, a, b, c);
}
inline Array<float> select(const Array<float>& condition, const Array<float>& yes,
                           const Array<float>& no) {
  return Array<float>::choice(condition, yes, no);
}
inline Array<double> select(const Array<double>& condition, const Array<double>& yes,
                            const Array<double>& no) {
  return Array<double>::choice(condition, yes, no);
}

}  // namespace gallop::cpu
