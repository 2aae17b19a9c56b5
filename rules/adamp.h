// SPDX-License-Identifier: MIT
#pragma once

#include "core/norms.h"

namespace gallop::rules {

struct AdamP {
  static constexpr const char* name = "adamp";
  static constexpr const char* about = "AdamP (Heo et al., arXiv:2006.08217)";
  static constexpr const char* formula =
      "u = (m/bc1) / (sqrt(v/bc2) + eps); if every |cos(g_r, p_r)| < delta / sqrt(row), rows r "
      "being channels, else the whole: u_r -= p_r (p_r.u_r) / (|p_r| + eps)^2, wd *= wd_ratio; "
      "p = p (1 - lr wd) - lr u";
  static constexpr State states[] = {{"exp_avg"}, {"exp_avg_sq", Sign::nonneg}};
  struct Hyper {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, delta = 0.1,
           wd_ratio = 0.1, nesterov = 0;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"beta1", &Hyper::beta1, fraction()},
      {"beta2", &Hyper::beta2, fraction()}, {"eps", &Hyper::eps, at_least(0)},
      {"weight_decay", &Hyper::weight_decay, at_least(0)},
      {"delta", &Hyper::delta, at_least(0), "how near to orthogonal a gradient must be"},
      {"wd_ratio", &Hyper::wd_ratio, at_least(0), "of decay where the update was projected"},
      {"nesterov", &Hyper::nesterov, flag()}};

  // |p|^2, |g|^2, g.p, p.u of every row
  static constexpr Sum sums[] = {
      {Over::row, 5u}, {Over::row, 1u}, {Over::row, 1u}, {Over::row, 4u}};
  // Gradients decide whether updates are projected. Those that are not need no more than this; a
  // projection needs p.u first.
  static constexpr int kDecay = 0, kProjected = 1, kByRow = 1, kWhole = 2;
  static constexpr Pass passes[] = {
      {.reads = 0},
      {.reads = 3u, .writes = kWritesParam | 3u, .if_zero = kProjected},
      {.reads = 3u, .writes = 3u, .if_set = kProjected},
      {.reads = 3u, .writes = kWritesParam, .grad = false, .unless = "nesterov",
       .if_set = kProjected},
      {.reads = 3u, .writes = kWritesParam, .when = "nesterov", .if_set = kProjected}};
  static constexpr Values values{2, 1, 0};
  static View view(Form f) {
    if (f.dims < 2) return {1, 1, f.n, false};
    return {1, f.shape[0], f.n / f.shape[0], true};
  }

  template <class T> struct Coef {
    T beta1, w1, beta2, w2, scale2, eps, neg_step, decay, delta, wd_ratio, nesterov;
  };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c) {
    const double bc1 = 1 - pow(h.beta1, c.t), bc2 = 1 - pow(h.beta2, c.t);
    return {h.beta1, 1 - h.beta1, h.beta2, 1 - h.beta2, 1 / sqrt(bc2), h.eps, -h.lr / bc1,
            h.lr * h.weight_decay, h.delta, h.wd_ratio, h.nesterov};
  }
  template <int P, bool Matrix, class T, class K, class X>
  static GALLOP_FN T pass(T p, T g, T (&s)[2], const K& k, const X& x, T (&sum)[4]) {
    auto& [m, v] = s;
    if constexpr (P == 0) {
      sum[0] = p * p;
      sum[1] = g * g;
      sum[2] = g * p;
      return p;
    }
    if constexpr (P < 3) {
      m = fma(k.beta1, m, k.w1 * g);
      v = fma(k.beta2, v, k.w2 * (g * g));
    }
    const T ahead = fma(k.beta1, m, k.w1 * g);
    const T top = P < 3 ? select(k.nesterov, ahead, m) : P == 3 ? m : ahead;
    const T u = top / fma(sqrt(v), k.scale2, k.eps);
    if constexpr (P == 2) {
      sum[0] = p * p;
      sum[3] = p * u;
      return p;
    }
    return fma(k.neg_step, P == 1 ? u : fma(-p, x.row[0], u), p * x.tensor[kDecay]);
  }
  template <int P, class V, class K>
  static GALLOP_FN void between(V& v, const K& k) {
    using N = typename V::Number;
    const auto sum = [&](int q) { return [&v, q](long long r) { return v.row_sum(q, r); }; };
    if constexpr (P == 0) {
      int projected = 0;
      if (v.matrix()) {
        const auto cosine = [&](N p, N g, N both) {
          return abs(both) / (max(sqrt(g), k.eps) * max(sqrt(p), k.eps));
        };
        const N most = v.max_rows(0, [&](long long r) {
          return cosine(v.row_sum(0, r), v.row_sum(1, r), v.row_sum(2, r));
        });
        if (is_above(k.delta / sqrt(static_cast<double>(v.columns())), most)) {
          projected = kByRow;
        } else {
          const N p = v.sum_rows(0, sum(0)), g = v.sum_rows(0, sum(1)), both = v.sum_rows(0, sum(2));
          if (is_above(k.delta / sqrt(v.elements()), cosine(p, g, both))) projected = kWhole;
        }
      }
      v.tensor(kProjected, projected);
      v.tensor(kDecay, 1 - k.decay * (projected != 0 ? k.wd_ratio : 1));
    } else {
      const auto along = [&](N p, N u) {
        const N length = sqrt(p) + k.eps;
        return u / (length * length);
      };
      const bool by_row = !is_above(v.tensor(kProjected), kByRow);
      N whole = 0;
      if (!by_row) {
        const N p = v.sum_rows(0, sum(0));
        whole = along(p, v.sum_rows(0, sum(3)));
      }
      v.for_rows(0, [&](long long r) {
        v.row(0, r, by_row ? along(v.row_sum(0, r), v.row_sum(3, r)) : whole);
      });
    }
  }
};

}  // namespace gallop::rules
