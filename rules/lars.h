// SPDX-License-Identifier: MIT
#pragma once

#include "core/norms.h"

namespace gallop::rules {

struct Lars {
  static constexpr const char* name = "lars";
  static constexpr const char* about = "LARS (You et al., arXiv:1708.03888)";
  static constexpr const char* formula =
      "r = trust |p| / (|g| + wd |p| + eps), 1 where a norm is 0; b = momentum b + r (g + wd p); "
      "p = p - lr b";
  static constexpr State states[] = {{"momentum_buffer"}};
  struct Hyper {
    double lr = 0.1, momentum = 0.9, weight_decay = 0, trust = 1e-3, eps = 1e-8;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"momentum", &Hyper::momentum, fraction()},
      {"weight_decay", &Hyper::weight_decay, at_least(0)},
      {"trust", &Hyper::trust, at_least(0), "of the norms' ratio"},
      {"eps", &Hyper::eps, at_least(0)}};

  static constexpr Sum sums[] = {{Over::tensor, 1u}, {Over::tensor, 1u}};  // |p|^2, |g|^2
  static constexpr Pass passes[] = {{0}, {1u, kWritesParam | 1u}};
  static constexpr Values values{1, 0, 0};
  static View view(Form f) { return {1, 1, f.n, false}; }

  template <class T> struct Coef { T neg_lr, momentum, wd, trust, eps; };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock) {
    return {-h.lr, h.momentum, h.weight_decay, h.trust, h.eps};
  }
  template <int P, bool, class T, class K, class X>
  static GALLOP_FN T pass(T p, T g, T (&s)[1], const K& k, const X& x, T (&sum)[2]) {
    if constexpr (P == 0) {
      sum[0] = p * p;
      sum[1] = g * g;
      return p;
    } else {
      s[0] = fma(k.momentum, s[0], x.tensor[0] * fma(k.wd, p, g));
      return fma(k.neg_lr, s[0], p);
    }
  }
  template <int P, class V, class K>
  static GALLOP_FN void between(V& v, const K& k) {
    const auto p = sqrt(v.total(0)), g = sqrt(v.total(1));
    const bool both = is_above(p, 0) && is_above(g, 0);
    v.tensor(0, both ? k.trust * p / (g + k.wd * p + k.eps) : 1);
  }
};

}  // namespace gallop::rules
