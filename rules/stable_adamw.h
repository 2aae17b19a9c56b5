// SPDX-License-Identifier: MIT
#pragma once

#include "core/norms.h"

namespace gallop::rules {

struct StableAdamW {
  static constexpr const char* name = "stable_adamw";
  static constexpr const char* about = "StableAdamW (Wortsman et al., arXiv:2304.13013)";
  static constexpr const char* formula =
      "AdamW with lr / max(1, RMS) for lr, RMS = sqrt(mean(g^2 / max(v/bc2, eps^2))) of the tensor";
  static constexpr State states[] = {{"exp_avg"}, {"exp_avg_sq", Sign::nonneg}};
  struct Hyper {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"beta1", &Hyper::beta1, fraction()},
      {"beta2", &Hyper::beta2, fraction()}, {"eps", &Hyper::eps, at_least(0)},
      {"weight_decay", &Hyper::weight_decay, at_least(0)}};

  static constexpr Sum sums[] = {{Over::tensor, 1u}};
  static constexpr Pass passes[] = {{2u, 0, true, false}, {3u, kWritesParam | 3u}};
  static constexpr Values values{1, 0, 0};
  static View view(Form f) { return {1, 1, f.n, false}; }

  template <class T> struct Coef { T w1, beta2, w2, unbias1, unbias2, eps, eps2, wd, neg_lr; };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c) {
    const double bc1 = 1 - pow(h.beta1, c.t), bc2 = 1 - pow(h.beta2, c.t);
    return {1 - h.beta1, h.beta2, 1 - h.beta2, 1 / bc1, 1 / bc2, h.eps, h.eps * h.eps,
            h.weight_decay, -h.lr};
  }
  template <int P, bool, class T, class K, class X>
  static GALLOP_FN T pass(T p, T g, T (&s)[2], const K& k, const X& x, T (&sum)[1]) {
    auto& [m, v] = s;
    v = fma(k.beta2, v, k.w2 * (g * g));
    if constexpr (P == 0) {
      sum[0] = g * g / max(v * k.unbias2, T(k.eps2));
      return p;
    } else {
      m = lerp(m, g, k.w1);
      const T step = fma(k.wd, p, m * k.unbias1 / (sqrt(v * k.unbias2) + k.eps));
      return fma(x.tensor[0], step, p);
    }
  }
  template <int P, class V, class K>
  static GALLOP_FN void between(V& v, const K& k) {
    v.tensor(0, k.neg_lr / max(1, sqrt(v.total(0) / v.elements())));
  }
};

}  // namespace gallop::rules
