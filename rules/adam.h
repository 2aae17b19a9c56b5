// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// Adam, arXiv:1412.6980, with torch's coupled weight decay and amsgrad on the raw second moment.
struct Adam {
  static constexpr const char* name = "adam";
  static constexpr const char* about = "Adam (Kingma & Ba, arXiv:1412.6980; torch.optim.Adam)";
  static constexpr const char* formula =
      "g += wd p; m += (1-b1)(g-m); v = b2 v + (1-b2) g^2; "
      "p -= lr/(1-b1^t) m / (sqrt(v/(1-b2^t)) + eps)";
  static constexpr State states[] = {
      {"exp_avg"}, {"exp_avg_sq", Sign::nonneg}, {"max_exp_avg_sq", Sign::nonneg, "amsgrad"}};
  struct Hyper {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, amsgrad = 0;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"beta1", &Hyper::beta1, fraction()},
      {"beta2", &Hyper::beta2, fraction()}, {"eps", &Hyper::eps, at_least(0)},
      {"weight_decay", &Hyper::weight_decay, at_least(0)}, {"amsgrad", &Hyper::amsgrad, flag()}};

  template <class T> struct Coef { T l2, keep, w1, beta2, w2, neg_step, rsqrt_bc2, eps; };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c) {
    const double bc1 = 1 - pow(h.beta1, c.t), bc2 = 1 - pow(h.beta2, c.t);
    return {h.weight_decay, 1, 1 - h.beta1, h.beta2, 1 - h.beta2, -h.lr / bc1, 1 / sqrt(bc2),
            h.eps};
  }
  template <class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[3], const K& k) {
    auto& [m, v, v_max] = s;
    g = fma(k.l2, p, g);
    m = lerp(m, g, k.w1);
    v = fma(k.beta2, v, k.w2 * (g * g));
    v_max = max(v_max, v);
    return fma(k.neg_step, m / fma(sqrt(v_max), k.rsqrt_bc2, k.eps), p * k.keep);
  }
};

}  // namespace gallop::rules
