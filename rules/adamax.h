// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// Adamax, arXiv:1412.6980 section 7.1: Adam with the infinity norm; torch.optim.Adamax.
struct Adamax {
  static constexpr const char* name = "adamax";
  static constexpr const char* about = "Adamax (Kingma & Ba, arXiv:1412.6980; torch.optim.Adamax)";
  static constexpr const char* formula =
      "m += (1-b1)(g-m); u = max(b2 u, |g| + eps); p -= lr/(1-b1^t) m / u";
  static constexpr State states[] = {{"exp_avg"}, {"exp_inf", Sign::nonneg}};
  struct Hyper { double lr = 2e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0; };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"beta1", &Hyper::beta1, fraction()},
      {"beta2", &Hyper::beta2, fraction()}, {"eps", &Hyper::eps, at_least(0)},
      {"weight_decay", &Hyper::weight_decay, at_least(0)}};

  template <class T> struct Coef { T l2, w1, beta2, eps, neg_step; };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c) {
    return {h.weight_decay, 1 - h.beta1, h.beta2, h.eps, -h.lr / (1 - pow(h.beta1, c.t))};
  }
  template <class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[2], const K& k) {
    auto& [m, u] = s;
    g = fma(k.l2, p, g);
    m = lerp(m, g, k.w1);
    u = max(u * k.beta2, abs(g) + k.eps);
    return fma(k.neg_step, m / u, p);
  }
};

}  // namespace gallop::rules
