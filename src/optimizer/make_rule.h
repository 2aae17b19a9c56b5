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
    info.states.push_back({s.name, s.sign == Sign::nonneg, s.exact, s.when ? s.when : ""});
  }
  for (int e = 0; e < entry_count<R>(); ++e) info.entries.emplace_back(entry_at<R>(e).name);
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
  Rule rule{info_of<R>(),
            {},
            kCoefs<R>,
            {},
            optional_count<R>(),
            coef_of<R>,
            nullptr,
            nullptr,
            hyper_members_of<R>,
            reference_of<R>,
            unfused_of<R, float>,
            unfused_of<R, double>,
            std::move(kernels),
            cuda};
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
