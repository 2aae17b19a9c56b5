// SPDX-License-Identifier: MIT
#pragma once

#include "core/norms.h"

namespace gallop::rules {

// As transformers computes it. Matrices are those of the last two dimensions.
struct Adafactor {
  static constexpr const char* name = "adafactor";
  static constexpr const char* about = "Adafactor (Shazeer and Stern, arXiv:1804.04235)";
  static constexpr const char* formula =
      "R, C = means of g^2 + eps1 by row and column, averaged; u = g / sqrt(R/mean(R) C); u = u / "
      "max(1, RMS(u)/clip_threshold); a = rate max(eps2, RMS(p)); p = p (1 - a wd) - a u";
  static constexpr State states[] = {
      {"exp_avg_sq_row", Sign::nonneg, nullptr, true, Per::row},
      {"exp_avg_sq_col", Sign::nonneg, nullptr, true, Per::column},
      {"exp_avg_sq", Sign::nonneg, nullptr, false, Per::element, Only::vectors},
      {"exp_avg", Sign::any, "beta1"}};
  struct Hyper {
    double lr = 0, eps1 = 1e-30, eps2 = 1e-3, clip_threshold = 1, decay_rate = -0.8, beta1 = 0,
           weight_decay = 0, scale_parameter = 1, relative_step = 1, warmup_init = 0;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0), "without relative_step"},
      {"eps1", &Hyper::eps1, at_least(0), "added to squared gradients"},
      {"eps2", &Hyper::eps2, at_least(0), "least size of a tensor for its rate"},
      {"clip_threshold", &Hyper::clip_threshold, above(0), "of an update's root mean square"},
      {"decay_rate", &Hyper::decay_rate, gallop::between(-8, 0), "beta2 = 1 - t^decay_rate"},
      {"beta1", &Hyper::beta1, fraction(), "momentum of updates; 0: none, and no state for it"},
      {"weight_decay", &Hyper::weight_decay, at_least(0)},
      {"scale_parameter", &Hyper::scale_parameter, flag(), "rate times the tensor's size"},
      {"relative_step", &Hyper::relative_step, flag(), "rate min(0.01, 1/sqrt(t))"},
      {"warmup_init", &Hyper::warmup_init, flag(), "rate at most 1e-6 t"}};
  static const char* reject(const Hyper& h) {
    if (h.relative_step != 0 && h.lr != 0) return "lr with relative_step, expected one of them";
    if (h.relative_step == 0 && h.warmup_init != 0) return "warmup_init without relative_step";
    return nullptr;
  }

  // g^2 + eps1 by row and by column, p^2, u^2
  static constexpr Sum sums[] = {
      {Over::row, 3u}, {Over::column, 3u}, {Over::tensor, 1u}, {Over::tensor, 4u}};
  static constexpr Pass passes[] = {
      {0, 0, true, true, "scale_parameter"},
      {0, 0, true, false, nullptr, "scale_parameter"},
      {4u, 4u, true, false},
      {12u, kWritesParam | 8u}};
  static constexpr Values values{3, 1, 1};  // scale, keep, rate; factors of row and column
  static View view(Form f) {
    if (f.dims < 2) return {1, 1, f.n, false};
    const long long rows = f.shape[f.dims - 2], columns = f.shape[f.dims - 1];
    return {f.n / (rows * columns), rows, columns, true};
  }

  template <class T> struct Coef {
    T beta2, w2, beta1, w1, eps1, eps2, clip, wd, rate, scales;
  };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c) {
    const double w2 = pow(c.t, h.decay_rate), warm = h.warmup_init != 0 ? 1e-6 * c.t : 1e-2;
    const double rate = h.relative_step != 0 ? min(warm, 1 / sqrt(c.t)) : h.lr;
    return {1 - w2, w2, h.beta1, 1 - h.beta1, h.eps1, h.eps2, h.clip_threshold, h.weight_decay,
            rate, h.scale_parameter};
  }
  template <int P, bool Matrix, class T, class K, class X>
  static GALLOP_FN T pass(T p, T g, T (&s)[4], const K& k, const X& x, T (&sum)[4]) {
    const T q = fma(g, g, T(k.eps1));
    if constexpr (P < 2) {
      sum[0] = sum[1] = q;
      sum[2] = p * p;
      return p;
    }
    if constexpr (P == 2) s[2] = fma(k.beta2, s[2], k.w2 * q);
    const T u = Matrix ? g * x.row[0] * x.column[0] : g / sqrt(s[2]);
    if constexpr (P == 2) {
      sum[3] = u * u;
      return p;
    }
    s[3] = fma(k.beta1, s[3], k.w1 * (x.tensor[0] * u));  // without momentum: the update itself
    return fma(p, x.tensor[1], -s[3]);
  }
  template <int P, class V, class K>
  static GALLOP_FN void between(V& v, const K& k) {
    using N = typename V::Number;
    if constexpr (P < 2) {
      const N size = k.scales != 0 ? max(k.eps2, sqrt(v.total(2) / v.elements())) : N(1);
      v.tensor(2, k.rate * size);
      v.tensor(1, 1 - k.wd * v.tensor(2));
      if (!v.matrix()) return;
      const auto rows = static_cast<double>(v.rows()), columns = static_cast<double>(v.columns());
      v.for_batches([&](long long b) {
        v.for_rows(b, [&](long long r) {
          v.state(0, r, k.beta2 * v.state_before(0, r) + k.w2 * (v.row_sum(0, r) / columns));
        });
        const N mean = v.sum_rows(b, [&](long long r) { return v.state(0, r); }) / rows;
        v.for_rows(b, [&](long long r) { v.row(0, r, 1 / sqrt(v.state(0, r) / mean)); });
        v.for_columns(b, [&](long long c) {
          const N next = k.beta2 * v.state_before(1, c) + k.w2 * (v.column_sum(1, c) / rows);
          v.state(1, c, next);
          v.column(0, c, 1 / sqrt(next));
        });
      });
    } else {
      v.tensor(0, v.tensor(2) / max(1, sqrt(v.total(3) / v.elements()) / k.clip));
    }
  }
};

}  // namespace gallop::rules
