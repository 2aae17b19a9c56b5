// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// QHAdam, arXiv:1810.06801. The bias correction is folded into the averages, so that they are not
// interchangeable with Adam's: beta_weight = (1 - beta^t) / (1 - beta).
struct QhAdam {
  static constexpr const char* name = "qhadam";
  static constexpr const char* about = "QHAdam (Ma & Yarats, arXiv:1810.06801; qhoptim)";
  static constexpr const char* formula =
      "m, v: bias-corrected averages of g, g^2; "
      "p -= lr (nu1 m + (1-nu1) g) / (sqrt(nu2 v + (1-nu2) g^2) + eps)";
  static constexpr State states[] = {{"exp_avg"}, {"exp_avg_sq", Sign::nonneg}};
  struct Hyper {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, nu1 = 1, nu2 = 1, weight_decay = 0,
           decouple_weight_decay = 0, eps = 1e-8;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"beta1", &Hyper::beta1, fraction()},
      {"beta2", &Hyper::beta2, fraction()}, {"nu1", &Hyper::nu1, at_least(0)},
      {"nu2", &Hyper::nu2, at_least(0)}, {"weight_decay", &Hyper::weight_decay, at_least(0)},
      {"decouple_weight_decay", &Hyper::decouple_weight_decay, flag()},
      {"eps", &Hyper::eps, at_least(0)}};
  struct Scalars { double beta1_weight = 0, beta2_weight = 0; };
  static constexpr const char* scalars[] = {"beta1_weight", "beta2_weight"};

  template <class T>
  struct Coef {
    T l2, keep, beta1, w1, beta2, w2, nu1, rest1, nu2, rest2, eps, neg_lr;
  };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock, Scalars& s) {
    s.beta1_weight = 1 + h.beta1 * s.beta1_weight;
    s.beta2_weight = 1 + h.beta2 * s.beta2_weight;
    const double w1 = 1 / s.beta1_weight, w2 = 1 / s.beta2_weight;
    const bool decoupled = h.decouple_weight_decay != 0;
    return {decoupled ? 0 : h.weight_decay, decoupled ? 1 - h.lr * h.weight_decay : 1, 1 - w1,
            w1, 1 - w2, w2, h.nu1, 1 - h.nu1, h.nu2, 1 - h.nu2, h.eps, -h.lr};
  }
  template <class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[2], const K& k) {
    auto& [m, v] = s;
    g = fma(k.l2, p, g);
    const T g2 = g * g;
    m = fma(k.beta1, m, k.w1 * g);
    v = fma(k.beta2, v, k.w2 * g2);
    const T step = fma(k.nu1, m, k.rest1 * g);
    const T scale = sqrt(fma(k.nu2, v, k.rest2 * g2)) + k.eps;
    return fma(k.neg_lr, step / scale, p * k.keep);
  }
};

}  // namespace gallop::rules
