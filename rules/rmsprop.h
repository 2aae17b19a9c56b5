// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// RMSprop as torch.optim.RMSprop, with momentum and the centered variant.
struct RmsProp {
  static constexpr const char* name = "rmsprop";
  static constexpr const char* about = "RMSprop (Tieleman & Hinton 2012; torch.optim.RMSprop)";
  static constexpr const char* formula =
      "v = alpha v + (1-alpha) g^2; b = momentum b + g / (sqrt(v - centered a^2) + eps); p -= lr b";
  static constexpr State states[] = {{"square_avg", Sign::nonneg},
                                     {"momentum_buffer", Sign::any, "momentum"},
                                     {"grad_avg", Sign::any, "centered"}};
  struct Hyper {
    double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0, centered = 0;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"alpha", &Hyper::alpha, fraction()},
      {"eps", &Hyper::eps, at_least(0)}, {"weight_decay", &Hyper::weight_decay, at_least(0)},
      {"momentum", &Hyper::momentum, at_least(0)}, {"centered", &Hyper::centered, flag()}};

  template <class T> struct Coef { T l2, alpha, w, w_center, eps, momentum, neg_lr; };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock) {
    return {h.weight_decay, h.alpha, 1 - h.alpha, h.centered != 0 ? 1 - h.alpha : 0, h.eps,
            h.momentum, -h.lr};
  }
  template <class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[3], const K& k) {
    auto& [v, b, a] = s;
    g = fma(k.l2, p, g);
    v = fma(k.alpha, v, k.w * (g * g));
    a = lerp(a, g, k.w_center);
    b = fma(k.momentum, b, g / (sqrt(fma(-a, a, v)) + k.eps));
    return fma(k.neg_lr, b, p);
  }
};

}  // namespace gallop::rules
