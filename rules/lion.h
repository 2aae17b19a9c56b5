// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// Lion, arXiv:2302.06675: the sign of an interpolated momentum.
struct Lion {
  static constexpr const char* name = "lion";
  static constexpr const char* about = "Lion (Chen et al., arXiv:2302.06675)";
  static constexpr const char* formula =
      "p = p (1 - lr wd) - lr sign(b1 m + (1-b1) g); m = b2 m + (1-b2) g";
  static constexpr State states[] = {{"exp_avg"}};
  struct Hyper { double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0; };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"beta1", &Hyper::beta1, between(0, 1)},
      {"beta2", &Hyper::beta2, between(0, 1)},
      {"weight_decay", &Hyper::weight_decay, at_least(0)}};

  template <class T> struct Coef { T keep, beta1, w1, beta2, w2, neg_lr; };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock) {
    return {1 - h.lr * h.weight_decay, h.beta1, 1 - h.beta1, h.beta2, 1 - h.beta2, -h.lr};
  }
  template <class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[1], const K& k) {
    auto& [m] = s;
    const T u = fma(k.beta1, m, k.w1 * g);
    m = fma(k.beta2, m, k.w2 * g);
    return fma(k.neg_lr, sign(u), p * k.keep);
  }
};

}  // namespace gallop::rules
