// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// Lion that moves a parameter only where its momentum and the gradient agree, after Cautious
// Optimizers, arXiv:2411.16085, without rescaling by the share of those that do.
struct CautiousLion {
  static constexpr const char* name = "cautious_lion";
  static constexpr const char* about = "Cautious Lion (Liang et al., arXiv:2411.16085)";
  static constexpr const char* formula =
      "u = sign(b1 m + (1-b1) g); p = p (1 - lr wd) - lr u [u g > 0]; m = b2 m + (1-b2) g";
  static constexpr State states[] = {{"exp_avg"}};
  struct Hyper {
    double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  };
  static constexpr Knob<Hyper> knobs[] = {{"lr", &Hyper::lr, at_least(0)},
                                          {"beta1", &Hyper::beta1, between(0, 1)},
                                          {"beta2", &Hyper::beta2, between(0, 1)},
                                          {"weight_decay", &Hyper::weight_decay, at_least(0)}};

  template <class T>
  struct Coef {
    T keep, beta1, w1, beta2, w2, neg_lr;
  };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock) {
    return {1 - h.lr * h.weight_decay, h.beta1, 1 - h.beta1, h.beta2, 1 - h.beta2, -h.lr};
  }
  template <class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[1], const K& k) {
    auto& [m] = s;
    const T u = sign(fma(k.beta1, m, k.w1 * g));
    m = fma(k.beta2, m, k.w2 * g);
    const T agrees = max(u * sign(g), T(0));  // 1 or 0
    return fma(k.neg_lr, u * agrees, p * k.keep);
  }
};

}  // namespace gallop::rules
