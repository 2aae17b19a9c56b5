// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// Adan, arXiv:2208.06677, in the convention of the authors' code: the betas are 1 minus the
// paper's.
struct Adan {
  static constexpr const char* name = "adan";
  static constexpr const char* about = "Adan (Xie et al., arXiv:2208.06677; sail-sg/Adan)";
  static constexpr const char* formula =
      "d = g - g_prev; m = b1 m + (1-b1) g; D = b2 D + (1-b2) d; v = b3 v + (1-b3)(g + b2 d)^2; "
      "p = (p - (lr/(1-b1^t) m + lr b2/(1-b2^t) D) / (sqrt(v/(1-b3^t)) + eps)) / (1 + lr wd)";
  static constexpr State states[] = {
      {"exp_avg"}, {"exp_avg_diff"}, {"exp_avg_sq", Sign::nonneg}, {"neg_pre_grad"}};
  static constexpr Counting counting = Counting::per_group;
  struct Hyper {
    double lr = 1e-3, beta1 = 0.98, beta2 = 0.92, beta3 = 0.99, eps = 1e-8, weight_decay = 0,
           max_grad_norm = 0, no_prox = 0;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"beta1", &Hyper::beta1, fraction()},
      {"beta2", &Hyper::beta2, fraction()}, {"beta3", &Hyper::beta3, fraction()},
      {"eps", &Hyper::eps, at_least(0)}, {"weight_decay", &Hyper::weight_decay, at_least(0)},
      {"max_grad_norm", &Hyper::max_grad_norm, at_least(0), "clip all gradients to this norm"},
      {"no_prox", &Hyper::no_prox, flag(), "decay before the step, as AdamW"}};
  static GALLOP_FN double clip(const Hyper& h, double norm) {
    const double factor = h.max_grad_norm / (norm + h.eps);
    return factor < 1 ? factor : 1;
  }

  template <class T>
  struct Coef {
    T first, before, after, beta1, w1, beta2, w2, beta3, w3, neg_step1, neg_step2, rsqrt_bc3, eps;
  };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c) {
    const double bc1 = 1 - pow(h.beta1, c.t), bc2 = 1 - pow(h.beta2, c.t),
                 bc3 = 1 - pow(h.beta3, c.t), decay = h.lr * h.weight_decay;
    return {c.first || c.t == 1 ? 1.0 : 0.0, h.no_prox != 0 ? 1 - decay : 1,
            h.no_prox != 0 ? 1 : 1 / (1 + decay), h.beta1, 1 - h.beta1, h.beta2, 1 - h.beta2,
            h.beta3, 1 - h.beta3, -h.lr / bc1, -h.lr * h.beta2 / bc2, 1 / sqrt(bc3), h.eps};
  }
  template <class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[4], const K& k) {
    auto& [m, d_avg, v, neg_prev] = s;
    const T d = select(k.first, T(0), neg_prev + g);
    const T u = fma(k.beta2, d, g);
    m = fma(k.beta1, m, k.w1 * g);
    d_avg = fma(k.beta2, d_avg, k.w2 * d);
    v = fma(k.beta3, v, k.w3 * (u * u));
    neg_prev = -g;
    const T move = fma(k.neg_step1, m, k.neg_step2 * d_avg);
    return fma(p, k.before, move / fma(sqrt(v), k.rsqrt_bc3, k.eps)) * k.after;
  }
};

}  // namespace gallop::rules
