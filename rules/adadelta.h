// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// Adadelta, arXiv:1212.5701, as torch.optim.Adadelta.
struct Adadelta {
  static constexpr const char* name = "adadelta";
  static constexpr const char* about = "Adadelta (Zeiler, arXiv:1212.5701; torch.optim.Adadelta)";
  static constexpr const char* formula =
      "v = rho v + (1-rho) g^2; d = g sqrt(a + eps) / sqrt(v + eps); a = rho a + (1-rho) d^2; "
      "p -= lr d";
  static constexpr State states[] = {{"square_avg", Sign::nonneg}, {"acc_delta", Sign::nonneg}};
  struct Hyper { double lr = 1.0, rho = 0.9, eps = 1e-6, weight_decay = 0; };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"rho", &Hyper::rho, fraction()},
      {"eps", &Hyper::eps, at_least(0)}, {"weight_decay", &Hyper::weight_decay, at_least(0)}};

  template <class T> struct Coef { T l2, rho, w, eps, neg_lr; };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock) {
    return {h.weight_decay, h.rho, 1 - h.rho, h.eps, -h.lr};
  }
  template <class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[2], const K& k) {
    auto& [v, a] = s;
    g = fma(k.l2, p, g);
    v = fma(k.rho, v, k.w * (g * g));
    const T d = sqrt(a + k.eps) / sqrt(v + k.eps) * g;
    a = fma(k.rho, a, k.w * (d * d));
    return fma(k.neg_lr, d, p);
  }
};

}  // namespace gallop::rules
