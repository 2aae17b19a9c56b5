// SPDX-License-Identifier: MIT
// Erases a rule's types. Included by the one generated file per rule that is compiled without
// instruction-set flags, and by those compiled at run time: nothing of std.
#pragma once

#include "optimizer/rule_data.h"

namespace gallop::detail {

template <class R>
typename R::Hyper hyper_of(const double* values) {
  typename R::Hyper h;
  for (const auto& knob : R::knobs) h.*knob.field = *values++;
  return h;
}

template <class R>
void hyper_members_of(const double* hyper, double* members) {
  const auto h = hyper_of<R>(hyper);
  __builtin_memcpy(members, &h, sizeof h);
}

template <class R>
void coef_of(const double* hyper, Clock clock, double* scalars, double* out) {
  const auto h = hyper_of<R>(hyper);
  CoefOf<R> k;
  if constexpr (requires { typename R::Scalars; }) {
    typename R::Scalars s;
    __builtin_memcpy(static_cast<void*>(&s), scalars, sizeof s);
    k = R::coef(h, clock, s);
    __builtin_memcpy(scalars, &s, sizeof s);
  } else {
    k = R::coef(h, clock);
  }
  __builtin_memcpy(out, &k, sizeof k);
}

// Calls f(constant) for the number i of `Count`.
template <int Count, int I = 0, class F>
void with_number(int i, F f) {
  if constexpr (I < Count) {
    if (i == I) return f(Constant<I>{});
    with_number<Count, I + 1>(i, f);
  }
}

template <class R, class T>
typename R::template Coef<cpu::Array<T>> array_coefs(const cpu::Array<T>* coef) {
  typename R::template Coef<cpu::Array<T>> k;
  static_assert(sizeof k == kCoefs<R> * sizeof(cpu::Array<T>));
  for (int i = 0; i < kCoefs<R>; ++i) reinterpret_cast<cpu::Array<T>*>(&k)[i] = coef[i];
  return k;
}

template <class R>
void between_of(int pass, Vectors<double>& v, const double* coef) {
  const auto k = narrow<R, double>(coef);
  with_number<pass_count<R>()>(pass, [&](auto p) {
    if constexpr (adds_anything<R>(p)) R::template between<p>(v, k);
  });
}

template <class R>
void reference_between_of(Arithmetic a, int pass, Vectors<Bounded>& v, const double* coef) {
  Bounded::arithmetic = a;
  const auto k = narrow<R, double>(coef);
  with_number<pass_count<R>()>(pass, [&](auto p) {
    if constexpr (adds_anything<R>(p)) R::template between<p>(v, k);
  });
}

template <class R>
void reference_pass_of(Arithmetic a, int pass, bool matrix, Bounded* p, Bounded g, Bounded* states,
                       const double* coef, const Seen<Bounded>& x, Bounded* sums) {
  Bounded::arithmetic = a;
  const auto k = narrow<R, double>(coef);
  auto& s = *reinterpret_cast<Bounded(*)[kStates<R>]>(states);
  auto& sum = *reinterpret_cast<Bounded(*)[sum_count<R>()]>(sums);
  with_number<pass_count<R>()>(pass, [&](auto number) {
    *p = matrix ? R::template pass<number, true>(*p, g, s, k, x, sum)
                : R::template pass<number, false>(*p, g, s, k, x, sum);
  });
}

template <class R, class T>
void unfused_pass_of(int pass, bool matrix, cpu::Array<T>* p_g_states, const cpu::Array<T>* coef,
                     const Seen<cpu::Array<T>>& x, cpu::Array<T>* sums) {
  const auto k = array_coefs<R>(coef);
  auto& s = *reinterpret_cast<cpu::Array<T>(*)[kStates<R>]>(p_g_states + 2);
  auto& sum = *reinterpret_cast<cpu::Array<T>(*)[sum_count<R>()]>(sums);
  with_number<pass_count<R>()>(pass, [&](auto number) {
    p_g_states[0] =
        matrix ? R::template pass<number, true>(p_g_states[0], p_g_states[1], s, k, x, sum)
               : R::template pass<number, false>(p_g_states[0], p_g_states[1], s, k, x, sum);
  });
}

template <class R>
void reference_of(Arithmetic a, int entry, Bounded* p, Bounded g, Bounded* states,
                  const double* coef) {
  Bounded::arithmetic = a;
  const auto k = narrow<R, double>(coef);
  auto& s = *reinterpret_cast<Bounded(*)[kStates<R>]>(states);
  with_number<entry_count<R>()>(entry, [&](auto e) { *p = apply<R, e>(*p, g, s, k); });
}

template <class R, class T>
void unfused_of(int entry, cpu::Array<T>* p_g_states, const cpu::Array<T>* coef) {
  const auto k = array_coefs<R>(coef);
  auto& s = *reinterpret_cast<cpu::Array<T>(*)[kStates<R>]>(p_g_states + 2);
  with_number<entry_count<R>()>(
      entry, [&](auto e) { p_g_states[0] = apply<R, e>(p_g_states[0], p_g_states[1], s, k); });
}

template <class R>
void add_norms(RuleData& rule) {
  rule.passes = {R::passes, length(R::passes)};
  rule.sums = {R::sums, length(R::sums)};
  rule.values = R::values;
  RuleFunctions& f = rule.functions;
  f.view = [](Form form, const double* hyper) {
    if constexpr (requires(typename R::Hyper h) { R::view(form, h); }) {
      return R::view(form, hyper_of<R>(hyper));
    } else {
      return R::view(form);
    }
  };
  f.has_pass = [](int pass, int variant) {
    const unsigned present = variant_states<R>(variant);
    return has_pass<R>(pass, false, states_of_form<R>(present, false)) ||
           has_pass<R>(pass, true, states_of_form<R>(present, true));
  };
  f.between = between_of<R>;
  f.reference_pass = reference_pass_of<R>;
  f.reference_between = reference_between_of<R>;
  f.unfused_pass_f32 = unfused_pass_of<R, float>;
  f.unfused_pass_f64 = unfused_pass_of<R, double>;
  if constexpr (kHasStages<R>) {
    rule.stages = R::stages;
    rule.has_bases = kHasBases<R>;
    if constexpr (requires { R::needs_matrix; }) rule.needs_matrix = R::needs_matrix;
    f.stage = [](int pass, Linear& on, const double* hyper) {
      R::stage(pass, on, hyper_of<R>(hyper));
    };
    f.bases = [](const double* hyper, Clock clock) {
      if constexpr (kHasBases<R>) return R::bases(hyper_of<R>(hyper), clock);
      return Bases::keep;
    };
  }
  static_assert(pass_count<R>() <= kMaxPasses && sum_count<R>() <= kMaxSums);
  static_assert(R::values.tensor <= kMaxTensorValues && R::values.row <= kMaxRowValues &&
                R::values.column <= kMaxColumnValues);
}

// Where the lists of a rule lie that it does not declare itself.
template <class R>
struct Lists {
  KnobData knobs[length(R::knobs)];
  Entry entries[entry_count<R>()];
  double scalars[kMaxScalars] = {};

  Lists() {
    const typename R::Hyper defaults;
    int i = 0;
    for (const auto& k : R::knobs) {
      knobs[i++] = {k.name, k.help, defaults.*k.field, k.range, k.choices};
    }
    for (int e = 0; e < entry_count<R>(); ++e) entries[e] = entry_at<R>(e);
    if constexpr (requires { typename R::Scalars; }) {
      const typename R::Scalars initial;
      static_assert(sizeof initial <= sizeof scalars);
      __builtin_memcpy(scalars, &initial, sizeof initial);
    }
  }
};

template <class R>
RuleData describe() {
  static_assert(length(R::knobs) * sizeof(double) == sizeof(typename R::Hyper),
                "every member of Hyper is a double and has a knob");
  static const Lists<R> lists;
  RuleData rule;
  rule.name = R::name;
  rule.about = R::about;
  rule.formula = R::formula;
  rule.knobs = {lists.knobs, length(R::knobs)};
  rule.states = {R::states, length(R::states)};
  rule.entries = {lists.entries, entry_count<R>()};
  if constexpr (requires { R::scalars; }) {
    rule.scalar_names = {R::scalars, length(R::scalars)};
  }
  if constexpr (requires { typename R::Scalars; }) {
    rule.scalars = {lists.scalars, sizeof(typename R::Scalars) / sizeof(double)};
  }
  rule.coefs = kCoefs<R>;
  rule.optional_states = optional_count<R>();
  rule.counts_per_group = counting<R>() == Counting::per_group;
  if constexpr (requires { R::keeps_dims; }) rule.keeps_dims = R::keeps_dims;
  RuleFunctions& f = rule.functions;
  f.coef = coef_of<R>;
  f.hyper_members = hyper_members_of<R>;
  if constexpr (kHasNorms<R>) {
    add_norms<R>(rule);
  } else {
    f.reference = reference_of<R>;
    f.unfused_f32 = unfused_of<R, float>;
    f.unfused_f64 = unfused_of<R, double>;
  }
  if constexpr (requires(typename R::Hyper h) { R::reject(h); }) {
    f.reject = [](const double* hyper) -> const char* { return R::reject(hyper_of<R>(hyper)); };
  }
  if constexpr (requires(typename R::Hyper h) { R::clip(h, 1.0); }) {
    f.clip = [](const double* hyper, double norm) { return R::clip(hyper_of<R>(hyper), norm); };
  }
  return rule;
}

}  // namespace gallop::detail
