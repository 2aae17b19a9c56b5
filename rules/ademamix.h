// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// AdEMAMix, arXiv:2409.03137: AdamW with a second, very slow average of the gradient.
struct AdEMAMix {
  static constexpr const char* name = "ademamix";
  static constexpr const char* about = "AdEMAMix (Pagliardini et al., arXiv:2409.03137)";
  static constexpr const char* formula =
      "m1 = b1 m1 + (1-b1) g; m2 = b3 m2 + (1-b3) g; v = b2 v + (1-b2) g^2; "
      "p -= lr ((m1/(1-b1^t) + alpha m2) / (sqrt(v/(1-b2^t)) + eps) + wd p)";
  static constexpr State states[] = {
      {"exp_avg_fast"}, {"exp_avg_slow"}, {"exp_avg_sq", Sign::nonneg}};
  struct Hyper {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, beta3 = 0.9999, alpha = 2, beta3_warmup = 0,
           alpha_warmup = 0, eps = 1e-8, weight_decay = 0;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"beta1", &Hyper::beta1, fraction()},
      {"beta2", &Hyper::beta2, fraction()}, {"beta3", &Hyper::beta3, fraction()},
      {"alpha", &Hyper::alpha, at_least(0)},
      {"beta3_warmup", &Hyper::beta3_warmup, count(), "steps over which beta3 grows from beta1"},
      {"alpha_warmup", &Hyper::alpha_warmup, count(), "steps over which alpha grows from 0"},
      {"eps", &Hyper::eps, at_least(0)}, {"weight_decay", &Hyper::weight_decay, at_least(0)}};

  // Half-life of an average, the quantity that beta3's warm-up makes grow linearly.
  static GALLOP_FN double half_life(double beta) { return log(0.5) / log(beta + 1e-8) - 1; }

  template <class T>
  struct Coef {
    T keep, beta1, w1, beta2, w2, beta3, w3, neg_fast, neg_slow, rsqrt_bc2, eps;
  };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c) {
    const double alpha = c.t < h.alpha_warmup ? c.t / h.alpha_warmup * h.alpha : h.alpha;
    double beta3 = h.beta3;
    if (c.t < h.beta3_warmup) {
      const double x = c.t / h.beta3_warmup;
      beta3 = pow(0.5, 1 / ((1 - x) * half_life(h.beta1) + x * half_life(h.beta3) + 1));
    }
    const double bc1 = 1 - pow(h.beta1, c.t), bc2 = 1 - pow(h.beta2, c.t);
    return {1 - h.lr * h.weight_decay, h.beta1, 1 - h.beta1, h.beta2, 1 - h.beta2, beta3,
            1 - beta3, -h.lr / bc1, -h.lr * alpha, 1 / sqrt(bc2), h.eps};
  }
  template <class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[3], const K& k) {
    auto& [fast, slow, v] = s;
    fast = fma(k.beta1, fast, k.w1 * g);
    slow = fma(k.beta3, slow, k.w3 * g);
    v = fma(k.beta2, v, k.w2 * (g * g));
    const T move = fma(k.neg_fast, fast, k.neg_slow * slow);
    return fma(p, k.keep, move / fma(sqrt(v), k.rsqrt_bc2, k.eps));
  }
};

}  // namespace gallop::rules
