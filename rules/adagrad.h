// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// Adagrad (Duchi et al., JMLR 2011) as torch.optim.Adagrad.
struct Adagrad {
  static constexpr const char* name = "adagrad";
  static constexpr const char* about = "Adagrad (Duchi et al., JMLR 12, 2011; torch.optim.Adagrad)";
  static constexpr const char* formula =
      "v += g^2; p -= lr / (1 + (t-1) lr_decay) g / (sqrt(v) + eps)";
  static constexpr State states[] = {{"sum", Sign::nonneg}};
  struct Hyper {
    double lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"lr_decay", &Hyper::lr_decay, at_least(0)},
      {"weight_decay", &Hyper::weight_decay, at_least(0)},
      {"initial_accumulator_value", &Hyper::initial_accumulator_value, at_least(0)},
      {"eps", &Hyper::eps, at_least(0)}};

  template <class T> struct Coef { T l2, first, initial, eps, neg_lr; };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c) {
    return {h.weight_decay, c.first ? 1.0 : 0.0, h.initial_accumulator_value, h.eps,
            -h.lr / (1 + (c.t - 1) * h.lr_decay)};
  }
  template <class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[1], const K& k) {
    auto& [v] = s;
    g = fma(k.l2, p, g);
    v = fma(g, g, select(k.first, T(k.initial), v));
    return fma(k.neg_lr, g / (sqrt(v) + k.eps), p);
  }
};

}  // namespace gallop::rules
