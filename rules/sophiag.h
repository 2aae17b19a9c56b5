// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// Sophia-G, arXiv:2305.14342. `hessian` is its second entry: after a backward pass of the loss on
// sampled labels, h = b2 h + (1-b2) g^2. bs is the tokens in that batch.
struct SophiaG {
  static constexpr const char* name = "sophiag";
  static constexpr const char* about = "Sophia-G (Liu et al., arXiv:2305.14342)";
  static constexpr const char* formula =
      "m = b1 m + (1-b1) g; p = p (1 - lr wd) - lr sign(m) min(|m| / (rho bs h + 1e-15), 1)";
  static constexpr State states[] = {{"exp_avg"}, {"hessian", Sign::nonneg}};
  static constexpr Entry entries[] = {{"step", kWritesParam | 1u}, {"hessian", 2u}};
  struct Hyper {
    double lr = 1e-4, beta1 = 0.965, beta2 = 0.99, rho = 0.04, weight_decay = 0.1, bs = 5120;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"beta1", &Hyper::beta1, fraction()},
      {"beta2", &Hyper::beta2, fraction()}, {"rho", &Hyper::rho, at_least(0)},
      {"weight_decay", &Hyper::weight_decay, at_least(0)},
      {"bs", &Hyper::bs, at_least(0), "tokens in the batch of a Hessian update"}};

  template <class T> struct Coef { T keep, beta1, w1, beta2, w2, rho_bs, tiny, one, neg_lr; };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock) {
    return {1 - h.lr * h.weight_decay, h.beta1, 1 - h.beta1, h.beta2, 1 - h.beta2, h.rho * h.bs,
            1e-15, 1, -h.lr};
  }
  template <int E, class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[2], const K& k) {
    auto& [m, h] = s;
    if constexpr (E == 0) {
      m = fma(k.beta1, m, k.w1 * g);
      const T ratio = min(abs(m) / fma(h, k.rho_bs, k.tiny), T(k.one));
      return fma(k.neg_lr, sign(m) * ratio, p * k.keep);
    } else {
      h = fma(k.beta2, h, k.w2 * (g * g));
      return p;
    }
  }
};

}  // namespace gallop::rules
