// SPDX-License-Identifier: MIT
#pragma once

#include "core/norms.h"

namespace gallop::rules {

// As apex's FusedLAMB computes it. The ratio is 1 where there is no decay, unless nvlamb.
struct Lamb {
  static constexpr const char* name = "lamb";
  static constexpr const char* about = "LAMB (You et al., arXiv:1904.00962)";
  static constexpr const char* formula =
      "g = g / max(1, |all g| / max_grad_norm); u = (m/bc1) / (sqrt(v/bc2) + eps) + wd p; "
      "p = p - lr |p|/|u| u";
  static constexpr State states[] = {{"exp_avg"}, {"exp_avg_sq", Sign::nonneg}};
  struct Hyper {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-6, weight_decay = 0.01,
           max_grad_norm = 1, bias_correction = 1, adam_w_mode = 1, grad_averaging = 1,
           use_nvlamb = 0;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"beta1", &Hyper::beta1, fraction()},
      {"beta2", &Hyper::beta2, fraction()}, {"eps", &Hyper::eps, at_least(0)},
      {"weight_decay", &Hyper::weight_decay, at_least(0)},
      {"max_grad_norm", &Hyper::max_grad_norm, at_least(0), "clip all gradients to it; 0: off"},
      {"bias_correction", &Hyper::bias_correction, flag()},
      {"adam_w_mode", &Hyper::adam_w_mode, flag(), "decay in the update, not in the gradient"},
      {"grad_averaging", &Hyper::grad_averaging, flag(), "1-beta1 on the gradient"},
      {"use_nvlamb", &Hyper::use_nvlamb, flag(), "the ratio of norms without decay too"}};
  static GALLOP_FN double clip(const Hyper& h, double norm) {
    return norm > h.max_grad_norm ? h.max_grad_norm / norm : norm != norm ? norm : 1;
  }

  static constexpr Sum sums[] = {{Over::tensor, 1u}, {Over::tensor, 1u}};  // |p|^2, |u|^2
  static constexpr Pass passes[] = {{3u, 3u}, {3u, kWritesParam, false}};
  static constexpr Values values{1, 0, 0};
  static View view(Form f) { return {1, 1, f.n, false}; }

  template <class T> struct Coef {
    T l2, beta1, w1, beta2, w2, unbias1, unbias2, eps, wd, neg_lr, trusts;
  };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c) {
    const bool unbiased = h.bias_correction != 0, decoupled = h.adam_w_mode != 0;
    return {decoupled ? 0 : h.weight_decay, h.beta1, h.grad_averaging != 0 ? 1 - h.beta1 : 1,
            h.beta2, 1 - h.beta2, unbiased ? 1 / (1 - pow(h.beta1, c.t)) : 1,
            unbiased ? 1 / (1 - pow(h.beta2, c.t)) : 1, h.eps, decoupled ? h.weight_decay : 0,
            -h.lr, h.weight_decay != 0 || h.use_nvlamb != 0 ? 1.0 : 0.0};
  }
  template <int P, bool, class T, class K, class X>
  static GALLOP_FN T pass(T p, T g, T (&s)[2], const K& k, const X& x, T (&sum)[2]) {
    auto& [m, v] = s;
    if constexpr (P == 0) {
      const T d = fma(k.l2, p, g);
      m = fma(k.beta1, m, k.w1 * d);
      v = fma(k.beta2, v, k.w2 * (d * d));
    }
    const T u = fma(k.wd, p, m * k.unbias1 / (sqrt(v * k.unbias2) + k.eps));
    if constexpr (P == 1) return fma(x.tensor[0], u, p);
    sum[0] = p * p;
    sum[1] = u * u;
    return p;
  }
  template <int P, class V, class K>
  static GALLOP_FN void between(V& v, const K& k) {
    const auto p = sqrt(v.total(0)), u = sqrt(v.total(1));
    const bool both = is_above(p, 0) && is_above(u, 0) && k.trusts != 0;
    v.tensor(0, both ? k.neg_lr * p / u : typename V::Number(k.neg_lr));
  }
};

}  // namespace gallop::rules
