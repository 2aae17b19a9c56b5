// SPDX-License-Identifier: MIT
#pragma once

#include "core/norms.h"

namespace gallop::rules {

// torch.optim.Adafactor, in fp32 whatever the parameter's type. Matrices are those of the last two
// dimensions.
struct AdafactorTorch {
  static constexpr const char* name = "adafactor_torch";
  static constexpr const char* about = "Adafactor as torch.optim has it";
  static constexpr const char* formula =
      "R, C = means of g^2 by row and column, averaged; V = R C / max(mean(R), eps1); u = g / "
      "sqrt(max(V, eps1^2)); p = p (1 - lr wd) - min(lr, 1/sqrt(t)) max(eps2, RMS(p)) / max(1, "
      "RMS(u)/d) u";
  static constexpr State states[] = {
      {"row_var", Sign::nonneg, nullptr, true, Per::row},
      {"col_var", Sign::nonneg, nullptr, true, Per::column},
      {"variance", Sign::nonneg, nullptr, false, Per::element, Only::vectors}};
  static constexpr bool keeps_dims = true;
  struct Hyper {
    double lr = 1e-2, beta2_decay = -0.8, eps1 = 1.1920928955078125e-07, eps2 = 1e-3, d = 1,
           weight_decay = 0;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)},
      {"beta2_decay", &Hyper::beta2_decay, gallop::between(-8, 0), "beta2 = 1 - t^beta2_decay"},
      {"eps1", &Hyper::eps1, at_least(0), "least mean of rows; default: fp32's"},
      {"eps2", &Hyper::eps2, at_least(0), "least size of a tensor for its rate"},
      {"d", &Hyper::d, above(0), "clips an update's root mean square"},
      {"weight_decay", &Hyper::weight_decay, at_least(0)}};

  // g^2 by row and by column, p^2, u^2
  static constexpr Sum sums[] = {
      {Over::row, 1u}, {Over::column, 1u}, {Over::tensor, 1u}, {Over::tensor, 2u}};
  static constexpr Pass passes[] = {{0}, {4u, 4u, true, false}, {4u, kWritesParam}};
  static constexpr Values values{2, 1, 1};  // scale, rate; R / max(mean(R), eps1); C
  static View view(Form f) {
    if (f.dims < 2) return {1, 1, f.n, false};
    const long long rows = f.shape[f.dims - 2], columns = f.shape[f.dims - 1];
    return {f.n / (rows * columns), rows, columns, true};
  }

  template <class T> struct Coef { T w2, eps1, least, eps2, d, keep, rate; };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c) {
    return {pow(c.t, h.beta2_decay), h.eps1, h.eps1 * h.eps1, h.eps2, h.d,
            1 - h.lr * h.weight_decay, min(h.lr, 1 / sqrt(c.t))};
  }
  template <int P, bool Matrix, class T, class K, class X>
  static GALLOP_FN T pass(T p, T g, T (&s)[3], const K& k, const X& x, T (&sum)[4]) {
    if constexpr (P == 0) {
      sum[0] = sum[1] = g * g;
      sum[2] = p * p;
      return p;
    }
    if constexpr (P == 1) s[2] = lerp(s[2], g * g, k.w2);
    const T v = Matrix ? x.row[0] * x.column[0] : s[2];
    const T u = g / sqrt(max(v, T(k.least)));
    if constexpr (P == 2) return fma(-x.tensor[0], u, p * k.keep);
    sum[3] = u * u;
    return p;
  }
  template <int P, class V, class K>
  static GALLOP_FN void between(V& v, const K& k) {
    using N = typename V::Number;
    if constexpr (P == 0) {
      v.tensor(1, k.rate * max(k.eps2, sqrt(v.total(2) / v.elements())));
      if (!v.matrix()) return;
      const auto rows = static_cast<double>(v.rows()), columns = static_cast<double>(v.columns());
      const auto blend = [&](N old, N fresh) { return old + k.w2 * (fresh - old); };
      v.for_batches([&](long long b) {
        v.for_rows(b, [&](long long r) {
          v.state(0, r, blend(v.state_before(0, r), v.row_sum(0, r) / columns));
        });
        const N mean = v.sum_rows(b, [&](long long r) { return v.state(0, r); }) / rows;
        v.for_rows(b, [&](long long r) { v.row(0, r, v.state(0, r) / max(mean, k.eps1)); });
        v.for_columns(b, [&](long long c) {
          const N next = blend(v.state_before(1, c), v.column_sum(1, c) / rows);
          v.state(1, c, next);
          v.column(0, c, next);
        });
      });
    } else {
      v.tensor(0, v.tensor(1) / max(1, sqrt(v.total(3) / v.elements()) / k.d));
    }
  }
};

}  // namespace gallop::rules
