// SPDX-License-Identifier: MIT
// Reads a rule's declarations at compile time and fills in what it left out.
#pragma once

#include "core/norms.h"

namespace gallop::detail {

inline constexpr int kMaxCoefs = 16;
inline constexpr int kMaxScalars = 4;

template <class T, int N>
constexpr int length(const T (&)[N]) {
  return N;
}

// Of two types; and a value as a type, for generic lambdas. Nothing of std is to be had on GPUs.
template <bool First, class A, class B>
struct ChosenType {
  using Type = A;
};
template <class A, class B>
struct ChosenType<false, A, B> {
  using Type = B;
};
template <bool First, class A, class B>
using Choose = typename ChosenType<First, A, B>::Type;

template <auto V>
struct Constant {
  // NOLINTNEXTLINE(google-explicit-constructor)
  GALLOP_FN constexpr operator decltype(V)() const { return V; }
};

constexpr bool same_text(const char* a, const char* b) {
  while (*a != 0 && *a == *b) ++a, ++b;
  return *a == *b;
}

template <class R>
inline constexpr int kStates = static_cast<int>(sizeof(R::states) / sizeof(State));

template <class R>
constexpr int optional_count() {
  int n = 0;
  for (const State& s : R::states) n += s.optional();
  return n;
}

// Kernels are compiled for every subset of a rule's optional states; V counts the subsets.
template <class R>
inline constexpr int kVariants = 1 << optional_count<R>();

template <class R>
constexpr unsigned variant_states(int variant) {
  unsigned present = 0;
  int bit = 0;
  for (int j = 0; j < kStates<R>; ++j) {
    const State& s = R::states[j];
    const bool kept = s.per == Per::element && (!s.optional() || (variant >> bit & 1));
    if (s.optional()) ++bit;
    if (kept) present |= 1u << j;
  }
  return present;
}

template <class R>
constexpr int entry_count() {
  if constexpr (requires { R::entries[0]; }) {
    return static_cast<int>(sizeof(R::entries) / sizeof(Entry));
  } else {
    return 1;
  }
}

template <class R>
constexpr Entry entry_at(int e) {
  if constexpr (requires { R::entries[0]; }) {
    return R::entries[e];
  } else {
    return {"step", ~0u};
  }
}

// Rules with norms: see core/norms.h.
template <class R>
inline constexpr bool kHasNorms = requires {
  R::passes[0];
};

template <class R>
constexpr int pass_count() {
  if constexpr (kHasNorms<R>) {
    return length(R::passes);
  } else {
    return 0;
  }
}

// Rules over matrices: see core/matrices.h.
template <class R>
inline constexpr bool kHasStages = requires {
  R::stages;
};
template <class R>
inline constexpr bool kHasBases = requires(const typename R::Hyper& h, Clock c) {
  R::bases(h, c);
};

// Kernels of a rule: one per entry, or one per pass and form of tensor (vector, matrix).
template <class R>
constexpr int kernel_count() {
  return kHasNorms<R> ? 2 * pass_count<R>() : entry_count<R>();
}

template <class R>
constexpr Counting counting() {
  if constexpr (requires { R::counting; }) {
    return R::counting;
  } else {
    return Counting::per_param;
  }
}

template <class R>
using CoefOf = typename R::template Coef<double>;

template <class R>
inline constexpr int kCoefs = static_cast<int>(sizeof(CoefOf<R>) / sizeof(double));

template <class R>
constexpr int sum_count() {
  if constexpr (kHasNorms<R>) {
    return length(R::sums);
  } else {
    return 1;
  }
}

// Whether pass P adds up sum q over `over`, in this form of tensor.
template <class R>
constexpr bool adds_up(int pass, bool matrix, int q, Over over) {
  const Sum& s = R::sums[q];
  return s.over == over && (s.passes >> pass & 1) != 0 && (matrix || over == Over::tensor);
}

template <class R>
constexpr bool adds_anything(int pass) {
  for (const Sum& s : R::sums) {
    if ((s.passes >> pass & 1) != 0) return true;
  }
  return false;
}

// Those of the states that such a tensor can have.
template <class R>
constexpr unsigned states_of_form(unsigned present, bool matrix) {
  for (int j = 0; j < kStates<R>; ++j) {
    const Only only = R::states[j].only;
    if (only != Only::any && (only == Only::matrices) != matrix) present &= ~(1u << j);
  }
  return present;
}

// Whether pass P has something to do.
template <class R>
constexpr bool has_pass(int pass, bool matrix, unsigned present) {
  const Only form = R::passes[pass].only;
  if (form != Only::any && (form == Only::matrices) != matrix) return false;
  const unsigned writes = R::passes[pass].writes;
  if ((writes & (kWritesParam | present)) != 0) return true;
  for (int q = 0; q < sum_count<R>(); ++q) {
    if (adds_up<R>(pass, matrix, q, R::sums[q].over)) return true;
  }
  return false;
}

// Calls the rule's formula number E.
template <class R, int E, class T, class K>
GALLOP_FN T apply(T p, T g, T (&s)[kStates<R>], const K& k) {
  if constexpr (entry_count<R>() > 1) {
    return R::template update<E>(p, g, s, k);
  } else {
    return R::update(p, g, s, k);
  }
}

// g -> clamp(g * scale, -limit, limit), before the factor of norm clipping. A NaN compares false
// and stays.
template <class T>
GALLOP_FN T clamped(T g, T scale, T limit) {
  g *= scale;
  g = limit < g ? limit : g;
  return -limit > g ? -limit : g;
}

// Coefficients are computed in double and rounded once to the precision of the kernel.
template <class R, class T>
GALLOP_FN typename R::template Coef<T> narrow(const double* from) {
  typename R::template Coef<T> k;
  static_assert(sizeof k == kCoefs<R> * sizeof(T), "a Coef<T> holds members of type T only");
  static_assert(kCoefs<R> <= kMaxCoefs && kStates<R> <= kMaxStates);
  T* to = reinterpret_cast<T*>(&k);
  for (int i = 0; i < kCoefs<R>; ++i) to[i] = static_cast<T>(from[i]);
  return k;
}

}  // namespace gallop::detail
