// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// NAdam: Adam with Nesterov momentum whose coefficient warms up; torch.optim.NAdam.
struct NAdam {
  static constexpr const char* name = "nadam";
  static constexpr const char* about = "NAdam (Dozat, ICLR 2016 workshop; torch.optim.NAdam)";
  static constexpr const char* formula =
      "mu_t = b1 (1 - 0.96^(t psi)/2); M = prod mu; "
      "p -= lr ((1-mu_t)/(1-M) g + mu_t+1/(1 - M mu_t+1) m) / (sqrt(v/(1-b2^t)) + eps)";
  static constexpr State states[] = {{"exp_avg"}, {"exp_avg_sq", Sign::nonneg}};
  struct Hyper {
    double lr = 2e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0,
           momentum_decay = 4e-3, decoupled_weight_decay = 0;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"beta1", &Hyper::beta1, fraction()},
      {"beta2", &Hyper::beta2, fraction()}, {"eps", &Hyper::eps, at_least(0)},
      {"weight_decay", &Hyper::weight_decay, at_least(0)},
      {"momentum_decay", &Hyper::momentum_decay, at_least(0)},
      {"decoupled_weight_decay", &Hyper::decoupled_weight_decay, flag()}};
  struct Scalars { double mu_product = 1; };
  static constexpr const char* scalars[] = {"mu_product"};

  template <class T> struct Coef { T l2, keep, w1, beta2, w2, neg_now, neg_next, rsqrt_bc2, eps; };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c, Scalars& s) {
    const double mu = h.beta1 * (1 - 0.5 * pow(0.96, c.t * h.momentum_decay));
    const double mu_next = h.beta1 * (1 - 0.5 * pow(0.96, (c.t + 1) * h.momentum_decay));
    s.mu_product *= mu;
    const bool decoupled = h.decoupled_weight_decay != 0;
    return {decoupled ? 0 : h.weight_decay, decoupled ? 1 - h.lr * h.weight_decay : 1,
            1 - h.beta1, h.beta2, 1 - h.beta2, -h.lr * (1 - mu) / (1 - s.mu_product),
            -h.lr * mu_next / (1 - s.mu_product * mu_next), 1 / sqrt(1 - pow(h.beta2, c.t)),
            h.eps};
  }
  template <class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[2], const K& k) {
    auto& [m, v] = s;
    g = fma(k.l2, p, g);
    m = lerp(m, g, k.w1);
    v = fma(k.beta2, v, k.w2 * (g * g));
    const T move = fma(k.neg_now, g, k.neg_next * m);
    return fma(p, k.keep, move / fma(sqrt(v), k.rsqrt_bc2, k.eps));
  }
};

}  // namespace gallop::rules
