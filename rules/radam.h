// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// RAdam, arXiv:1908.03265: Adam that starts as momentum SGD until the second moment is trusted.
struct RAdam {
  static constexpr const char* name = "radam";
  static constexpr const char* about = "RAdam (Liu et al., arXiv:1908.03265; torch.optim.RAdam)";
  static constexpr const char* formula =
      "rho_t > 5: p -= lr r_t m/(1-b1^t) sqrt(1-b2^t) / (sqrt(v) + eps); else p -= lr m/(1-b1^t)";
  static constexpr State states[] = {{"exp_avg"}, {"exp_avg_sq", Sign::nonneg}};
  struct Hyper {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0,
           decoupled_weight_decay = 0;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"beta1", &Hyper::beta1, fraction()},
      {"beta2", &Hyper::beta2, fraction()}, {"eps", &Hyper::eps, at_least(0)},
      {"weight_decay", &Hyper::weight_decay, at_least(0)},
      {"decoupled_weight_decay", &Hyper::decoupled_weight_decay, flag()}};

  template <class T> struct Coef { T l2, keep, w1, beta2, w2, rectified, neg_step, eps; };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c) {
    const double b2t = pow(h.beta2, c.t), bc2 = 1 - b2t;
    const double rho_inf = 2 / (1 - h.beta2) - 1, rho = rho_inf - 2 * c.t * b2t / bc2;
    const bool rectified = rho > 5;
    const double r =
        rectified
            ? sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho) * bc2)
            : 1;
    const bool decoupled = h.decoupled_weight_decay != 0;
    return {decoupled ? 0 : h.weight_decay, decoupled ? 1 - h.lr * h.weight_decay : 1,
            1 - h.beta1, h.beta2, 1 - h.beta2, rectified ? 1.0 : 0.0,
            -h.lr * r / (1 - pow(h.beta1, c.t)), h.eps};
  }
  template <class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[2], const K& k) {
    auto& [m, v] = s;
    g = fma(k.l2, p, g);
    m = lerp(m, g, k.w1);
    v = fma(k.beta2, v, k.w2 * (g * g));
    return fma(k.neg_step, select(k.rectified, m / (sqrt(v) + k.eps), m), p * k.keep);
  }
};

}  // namespace gallop::rules
