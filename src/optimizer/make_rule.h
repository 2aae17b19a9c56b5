// SPDX-License-Identifier: MIT
// Erases a rule's types. Included by the one generated file per rule that is compiled without
// instruction-set flags.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

#include "optimizer/rule.h"

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
  std::memcpy(members, &h, sizeof h);
}

template <class R>
void coef_of(const double* hyper, Clock clock, double* scalars, double* out) {
  const auto h = hyper_of<R>(hyper);
  CoefOf<R> k;
  if constexpr (requires { typename R::Scalars; }) {
    typename R::Scalars s;
    std::memcpy(static_cast<void*>(&s), scalars, sizeof s);
    k = R::coef(h, clock, s);
    std::memcpy(scalars, &s, sizeof s);
  } else {
    k = R::coef(h, clock);
  }
  std::memcpy(out, &k, sizeof k);
}

// Calls f(integral constant) for the entry number e.
template <class R, class F>
void with_entry(int e, F f) {
  [&]<int... E>(std::integer_sequence<int, E...>) {
    (void)((e == E && (f(std::integral_constant<int, E>{}), true)) || ...);
  }
  (std::make_integer_sequence<int, entry_count<R>()>{});
}

// Calls f(integral constant) for the pass number p.
template <class R, class F>
void with_pass(int pass, F f) {
  [&]<int... P>(std::integer_sequence<int, P...>) {
    (void)((pass == P && (f(std::integral_constant<int, P>{}), true)) || ...);
  }
  (std::make_integer_sequence<int, pass_count<R>()>{});
}

template <class R, class N>
void between_of(int pass, Vectors<N>& v, const double* coef) {
  const auto k = narrow<R, double>(coef);
  with_pass<R>(pass, [&](auto p) {
    if constexpr (adds_anything<R>(p)) R::template between<p>(v, k);
  });
}

template <class R>
void reference_pass_of(int pass, bool matrix, Bounded* p, Bounded g, Bounded* states,
                       const double* coef, const Seen<Bounded>& x, Bounded* sums) {
  const auto k = narrow<R, double>(coef);
  auto& s = *reinterpret_cast<Bounded(*)[kStates<R>]>(states);
  auto& sum = *reinterpret_cast<Bounded(*)[sum_count<R>()]>(sums);
  with_pass<R>(pass, [&](auto number) {
    *p = matrix ? R::template pass<number, true>(*p, g, s, k, x, sum)
                : R::template pass<number, false>(*p, g, s, k, x, sum);
  });
}

template <class R, class T>
void unfused_pass_of(int pass, bool matrix, cpu::Array<T>* p_g_states, const cpu::Array<T>* coef,
                     const Seen<cpu::Array<T>>& x, cpu::Array<T>* sums) {
  typename R::template Coef<cpu::Array<T>> k;
  std::copy(coef, coef + kCoefs<R>, reinterpret_cast<cpu::Array<T>*>(&k));
  auto& s = *reinterpret_cast<cpu::Array<T>(*)[kStates<R>]>(p_g_states + 2);
  auto& sum = *reinterpret_cast<cpu::Array<T>(*)[sum_count<R>()]>(sums);
  with_pass<R>(pass, [&](auto number) {
    p_g_states[0] =
        matrix ? R::template pass<number, true>(p_g_states[0], p_g_states[1], s, k, x, sum)
               : R::template pass<number, false>(p_g_states[0], p_g_states[1], s, k, x, sum);
  });
}

template <class R>
void add_norms(Rule& rule) {
  rule.passes.assign(std::begin(R::passes), std::end(R::passes));
  rule.sums.assign(std::begin(R::sums), std::end(R::sums));
  rule.values = R::values;
  rule.view = [](Form form, const double* hyper) {
    if constexpr (requires(typename R::Hyper h) { R::view(form, h); }) {
      return R::view(form, hyper_of<R>(hyper));
    } else {
      return R::view(form);
    }
  };
  rule.between = between_of<R, double>;
  rule.reference_pass = reference_pass_of<R>;
  rule.reference_between = between_of<R, Bounded>;
  rule.unfused_pass_f32 = unfused_pass_of<R, float>;
  rule.unfused_pass_f64 = unfused_pass_of<R, double>;
  if constexpr (kHasStages<R>) {
    rule.stages = R::stages;
    if constexpr (requires { R::needs_matrix; }) rule.needs_matrix = R::needs_matrix;
    rule.stage = [](int pass, Linear& on, const double* hyper) {
      R::stage(pass, on, hyper_of<R>(hyper));
    };
    rule.bases = [](const double* hyper, Clock clock) {
      if constexpr (kHasBases<R>) return R::bases(hyper_of<R>(hyper), clock);
      return Bases::keep;
    };
  }
  static_assert(pass_count<R>() <= kMaxPasses && sum_count<R>() <= kMaxSums);
  static_assert(R::values.tensor <= kMaxTensorValues && R::values.row <= kMaxRowValues &&
                R::values.column <= kMaxColumnValues);
}

template <class R>
void reference_of(int entry, Bounded* p, Bounded g, Bounded* states, const double* coef) {
  const auto k = narrow<R, double>(coef);
  auto& s = *reinterpret_cast<Bounded(*)[kStates<R>]>(states);
  with_entry<R>(entry, [&](auto e) { *p = apply<R, e>(*p, g, s, k); });
}

template <class R, class T>
void unfused_of(int entry, cpu::Array<T>* p_g_states, const cpu::Array<T>* coef) {
  typename R::template Coef<cpu::Array<T>> k;
  static_assert(sizeof k == kCoefs<R> * sizeof(cpu::Array<T>));
  std::copy(coef, coef + kCoefs<R>, reinterpret_cast<cpu::Array<T>*>(&k));
  auto& s = *reinterpret_cast<cpu::Array<T>(*)[kStates<R>]>(p_g_states + 2);
  with_entry<R>(entry,
                [&](auto e) { p_g_states[0] = apply<R, e>(p_g_states[0], p_g_states[1], s, k); });
}

inline std::vector<std::string> split_choices(const char* text) {
  std::vector<std::string> out;
  for (std::string rest = text == nullptr ? "" : text; !rest.empty();) {
    const size_t bar = rest.find('|');
    out.push_back(rest.substr(0, bar));
    rest = bar == std::string::npos ? "" : rest.substr(bar + 1);
  }
  return out;
}

template <class R>
RuleInfo info_of() {
  RuleInfo info{R::name, R::about, R::formula, {},
                {},      {},       {},         counting<R>() == Counting::per_group};
  const typename R::Hyper defaults;
  for (const auto& k : R::knobs) {
    info.knobs.push_back({k.name, k.help, defaults.*k.field, k.range.low, k.range.high,
                          k.range.low_included, k.range.high_included, k.range.whole,
                          split_choices(k.choices)});
  }
  for (const State& s : R::states) {
    info.states.push_back(
        {s.name, s.sign == Sign::nonneg, s.exact || s.per != Per::element, s.when ? s.when : "",
         static_cast<StatePer>(s.per), s.only != Only::vectors,
         s.only != Only::matrices && s.per == Per::element, s.optional(), s.scratch, s.basis});
  }
  for (int e = 0; e < entry_count<R>(); ++e) info.entries.emplace_back(entry_at<R>(e).name);
  if constexpr (requires { R::keeps_dims; }) info.keeps_dims = R::keeps_dims;
  if constexpr (requires { R::scalars; }) {
    for (const char* s : R::scalars) info.scalars.emplace_back(s);
  }
  return info;
}

template <class R>
Rule make_rule(std::vector<const cpu::RuleKernels*> kernels, const cuda::RuleKernels* cuda) {
  static_assert(
      sizeof(R::knobs) / sizeof(R::knobs[0]) * sizeof(double) == sizeof(typename R::Hyper),
      "every member of Hyper is a double and has a knob");
  Rule rule;
  rule.info = info_of<R>();
  rule.coefs = kCoefs<R>;
  rule.optional_states = optional_count<R>();
  rule.coef = coef_of<R>;
  rule.hyper_members = hyper_members_of<R>;
  rule.cpu = std::move(kernels);
  rule.cuda = cuda;
  if constexpr (kHasNorms<R>) {
    add_norms<R>(rule);
  } else {
    rule.reference = reference_of<R>;
    rule.unfused_f32 = unfused_of<R, float>;
    rule.unfused_f64 = unfused_of<R, double>;
  }
  for (int e = 0; e < entry_count<R>(); ++e) rule.entries.push_back(entry_at<R>(e));
  if constexpr (requires { typename R::Scalars; }) {
    const typename R::Scalars initial;
    rule.scalars.resize(sizeof initial / sizeof(double));
    std::memcpy(rule.scalars.data(), &initial, sizeof initial);
    static_assert(sizeof initial / sizeof(double) <= kMaxScalars);
  }
  if constexpr (requires(typename R::Hyper h) { R::reject(h); }) {
    rule.reject = [](const double* hyper) { return R::reject(hyper_of<R>(hyper)); };
  }
  if constexpr (requires(typename R::Hyper h) { R::clip(h, 1.0); }) {
    rule.clip = [](const double* hyper, double norm) { return R::clip(hyper_of<R>(hyper), norm); };
  }
  return rule;
}

}  // namespace gallop::detail
