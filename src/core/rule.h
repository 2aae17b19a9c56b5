// SPDX-License-Identifier: MIT
// What a rule file may use. The same text is compiled for every instruction set, for the double
// reference, for whole arrays (mode unfused) and later for devices: it includes nothing of std, and
// everything is forced inline so that no instruction-set-specific symbol leaves an object file.
#pragma once

#if defined(__CUDACC__)
#define GALLOP_FN __host__ __device__ __forceinline__
#else
#define GALLOP_FN inline __attribute__((always_inline))
#endif

namespace gallop {

// ---- what a rule declares ----

enum class Sign { any, nonneg };

// What a state has one value for, and for which tensors it is kept (see core/norms.h).
enum class Per { element, row, column, row_pair, column_pair };
enum class Only { any, matrices, vectors };

// A state starts at zero.
struct State {
  const char* name;            // the name torch's state_dict uses, where there is one
  Sign sign = Sign::any;       // lets a format spend its sign bit elsewhere
  const char* when = nullptr;  // kept only if this knob is not zero; absent states read as zero
  bool exact = false;          // weight-like: never stored in fewer than 32 bits
  Per per = Per::element;      // rows and columns are those of matrices, and always exact
  Only only = Only::any;
  bool scratch = false;  // lives for one step: see core/matrices.h
  bool basis = false;    // orthonormal rows; not the only ones that are right

  // Whether kernels are compiled with it and without.
  constexpr bool optional() const { return per == Per::element && when != nullptr; }
};

struct Range {
  double low, high;
  bool low_included, high_included;
  bool whole = false;
};

inline constexpr double kInfinity = __builtin_bit_cast(double, 0x7ff0000000000000ull);

constexpr Range at_least(double low) { return {low, kInfinity, true, true}; }
constexpr Range above(double low) { return {low, kInfinity, false, true}; }
constexpr Range fraction() { return {0, 1, true, false}; }  // [0, 1)
constexpr Range between(double low, double high) { return {low, high, true, true}; }
constexpr Range flag() { return {0, 1, true, true, true}; }
constexpr Range count() { return {0, 9007199254740992.0, true, true, true}; }

// A hyper-parameter: its flag on the command line and its key in a checkpoint are `name`.
template <class Hyper>
struct Knob {
  const char* name;
  double Hyper::*field;  // its default is Hyper{}.*field
  Range range;
  const char* help = "";
  const char* choices = nullptr;  // "grad|direct": the value is an index into these
};

// When a step's coefficients are computed. t counts from 1; first: the element states are still
// their initial zeros; schedule: the factor that is in lr already, for other rates.
struct Clock {
  double t;
  bool first;
  double schedule;
};

enum class Counting { per_param, per_group };

// A rule's formula, or a further one over the same states (Sophia's Hessian update).
struct Entry {
  const char* name;
  unsigned writes;   // bit j: state j; kWritesParam: the parameter
  bool grad = true;  // whether it reads the gradient
};
inline constexpr unsigned kWritesParam = 1u << 31;

// ---- arithmetic on one element: T is float, double or an array ----

// Where the target has no fused multiply-add, fma rounds twice (libm's emulation costs 20x).
#if defined(__CUDA_ARCH__)
GALLOP_FN float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
GALLOP_FN double fma(double a, double b, double c) { return ::fma(a, b, c); }
#elif defined(__FMA__) || defined(__aarch64__)
GALLOP_FN float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
GALLOP_FN double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
GALLOP_FN float fma(float a, float b, float c) { return a * b + c; }
GALLOP_FN double fma(double a, double b, double c) { return a * b + c; }
#endif
#if defined(__CUDA_ARCH__)
GALLOP_FN float sqrt(float x) { return ::sqrtf(x); }
GALLOP_FN double sqrt(double x) { return ::sqrt(x); }
GALLOP_FN float abs(float x) { return ::fabsf(x); }
GALLOP_FN double abs(double x) { return ::fabs(x); }
#else
GALLOP_FN float sqrt(float x) { return __builtin_sqrtf(x); }
GALLOP_FN double sqrt(double x) { return __builtin_sqrt(x); }
GALLOP_FN float abs(float x) { return __builtin_fabsf(x); }
GALLOP_FN double abs(double x) { return __builtin_fabs(x); }
#endif

namespace detail {
// NaN in either argument is kept, as torch does.
template <class T>
GALLOP_FN T max_of(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
GALLOP_FN T min_of(T a, T b) {
  return a < b || a != a ? a : b;
}
// One comparison: of two, and a product of two signs, g++ makes nine cases.
#if defined(__CUDA_ARCH__)
GALLOP_FN float one_with_sign_of(float x) { return ::copysignf(1.0f, x); }
GALLOP_FN double one_with_sign_of(double x) { return ::copysign(1.0, x); }
#else
GALLOP_FN float one_with_sign_of(float x) { return __builtin_copysignf(1.0f, x); }
GALLOP_FN double one_with_sign_of(double x) { return __builtin_copysign(1.0, x); }
#endif
template <class T>
GALLOP_FN T sign_of(T x) {
  return abs(x) > 0 ? one_with_sign_of(x) : x;
}
}  // namespace detail

GALLOP_FN float max(float a, float b) { return detail::max_of(a, b); }
GALLOP_FN double max(double a, double b) { return detail::max_of(a, b); }
GALLOP_FN float min(float a, float b) { return detail::min_of(a, b); }
GALLOP_FN double min(double a, double b) { return detail::min_of(a, b); }
// -1, 1, or x itself where x is zero or NaN.
GALLOP_FN float sign(float x) { return detail::sign_of(x); }
GALLOP_FN double sign(double x) { return detail::sign_of(x); }

// condition is a coefficient, the same for every element.
template <class C, class T>
GALLOP_FN T select(C condition, T yes, T no) {
  return condition != 0 ? yes : no;
}
template <class T, class W>
GALLOP_FN T lerp(T a, T b, W w) {
  return fma(b - a, w, a);
}

// ---- arithmetic on coefficients, always double, host and device ----

#if defined(__CUDA_ARCH__)
GALLOP_FN double pow(double x, double y) { return ::pow(x, y); }
GALLOP_FN double exp(double x) { return ::exp(x); }
GALLOP_FN double log(double x) { return ::log(x); }
GALLOP_FN double cos(double x) { return ::cos(x); }
GALLOP_FN double floor(double x) { return ::floor(x); }
#else
GALLOP_FN double pow(double x, double y) { return __builtin_pow(x, y); }
GALLOP_FN double exp(double x) { return __builtin_exp(x); }
GALLOP_FN double log(double x) { return __builtin_log(x); }
GALLOP_FN double cos(double x) { return __builtin_cos(x); }
GALLOP_FN double floor(double x) { return __builtin_floor(x); }
#endif

}  // namespace gallop
