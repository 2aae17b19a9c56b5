// SPDX-License-Identifier: MIT
#pragma once

#include "core/matrices.h"

namespace gallop::rules {

// Adam in the eigenbasis of Shampoo's preconditioners. The first step only makes the bases. Tensors
// of more than two dimensions are flattened to their first dimension by the rest; sides longer than
// max_precond_dim are not rotated, and what has no other side goes by plain Adam.
struct Soap {
  static constexpr const char* name = "soap";
  static constexpr const char* about = "SOAP (Vyas et al., arXiv:2409.11321)";
  static constexpr const char* formula =
      "h = L g R^T; m = b1 m + (1-b1) h; v = b2 v + (1-b2) h^2; N = L^T (m / (sqrt(v) + eps)) R; "
      "p = (p - lr sqrt(bc2)/bc1 N) (1 - lr wd); G_L += (1-sb)(g g^T - G_L), G_R likewise; every "
      "precondition_frequency steps L, R = one step nearer to their eigenvectors, m turned with them";
  static constexpr State states[] = {
      {.name = "exp_avg", .exact = true},
      {.name = "exp_avg_sq", .sign = Sign::nonneg, .exact = true},
      {.name = "GG_left", .per = Per::row_pair, .only = Only::matrices},
      {.name = "GG_right", .per = Per::column_pair, .only = Only::matrices},
      {.name = "Q_left", .per = Per::row_pair, .only = Only::matrices, .basis = true},
      {.name = "Q_right", .per = Per::column_pair, .only = Only::matrices, .basis = true},
      {.name = "gradient", .exact = true, .only = Only::matrices, .scratch = true},
      {.name = "turned", .exact = true, .only = Only::matrices, .scratch = true}};
  struct Hyper {
    double lr = 3e-3, beta1 = 0.95, beta2 = 0.95, shampoo_beta = -1, eps = 1e-8,
           weight_decay = 0.01, precondition_frequency = 10, max_precond_dim = 10000,
           normalize_grads = 0, correct_bias = 1;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"beta1", &Hyper::beta1, fraction()},
      {"beta2", &Hyper::beta2, fraction()},
      {"shampoo_beta", &Hyper::shampoo_beta, {-1, 1, true, false},
       "of the averages G; below 0: beta2"},
      {"eps", &Hyper::eps, at_least(0)}, {"weight_decay", &Hyper::weight_decay, at_least(0)},
      {"precondition_frequency", &Hyper::precondition_frequency,
       {1, 9007199254740992.0, true, true, true}, "steps from one change of bases to the next"},
      {"max_precond_dim", &Hyper::max_precond_dim, {0, 30000, true, true, true},
       "longer sides are not rotated"},
      {"normalize_grads", &Hyper::normalize_grads, flag(), "divide N by its root mean square"},
      {"correct_bias", &Hyper::correct_bias, flag()}};

  static constexpr Sum sums[] = {{Over::tensor, 2u | 8u}};  // N^2
  static constexpr Pass passes[] = {
      {.reads = 0, .writes = 3u << 6, .param = false, .only = Only::matrices},
      {.reads = 3u | 1u << 7, .writes = 3u | 1u << 7, .grad = false, .param = false,
       .only = Only::matrices},
      {.reads = 1u << 7, .writes = kWritesParam, .grad = false, .only = Only::matrices},
      {.reads = 3u, .writes = 3u, .param = false, .when = "normalize_grads", .only = Only::vectors},
      {.reads = 3u, .writes = kWritesParam, .grad = false, .when = "normalize_grads",
       .only = Only::vectors},
      {.reads = 3u, .writes = kWritesParam | 3u, .unless = "normalize_grads",
       .only = Only::vectors}};
  static constexpr Values values{1, 0, 0};  // what N is multiplied with
  static View view(Form f, const Hyper& h) {
    const long long rows = f.dims < 2 ? 1 : f.shape[0], columns = f.n / rows;
    const auto fits = [&](long long side) { return static_cast<double>(side) <= h.max_precond_dim; };
    const bool left = f.dims >= 2 && fits(rows), right = f.dims >= 2 && fits(columns);
    if (!left && !right) return {1, 1, f.n, false};
    return {1, rows, columns, true, left, right};
  }

  template <class T> struct Coef {
    T first, beta1, w1, beta2, w2, eps, neg_step, decay, normalize;
  };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c) {
    const double t = c.t - 1;  // the first step is not counted
    const bool first = t == 0;
    const double bias = first || h.correct_bias == 0
                            ? 1 : sqrt(1 - pow(h.beta2, t)) / (1 - pow(h.beta1, t));
    return {first ? 1.0 : 0.0, h.beta1, 1 - h.beta1, h.beta2, 1 - h.beta2, h.eps,
            first ? 0 : -h.lr * bias, first ? 0 : h.lr * h.weight_decay, h.normalize_grads};
  }
  template <int P, bool Matrix, class T, class K, class X>
  static GALLOP_FN T pass(T p, T g, T (&s)[8], const K& k, const X& x, T (&sum)[1]) {
    T &m = s[0], &v = s[1], &gradient = s[6], &turned = s[7];
    if constexpr (P == 0) {
      gradient = turned = g;
      return p;
    }
    if constexpr (P == 1 || P == 3 || P == 5) {
      const T h = P == 1 ? turned : g;
      m = select(k.first, m, fma(k.beta1, m, k.w1 * h));
      v = select(k.first, v, fma(k.beta2, v, k.w2 * (h * h)));
    }
    const T n = P == 2 ? turned : m / (sqrt(v) + k.eps);
    if constexpr (P == 1) turned = n;
    sum[0] = n * n;
    if constexpr (P == 1 || P == 3) return p;
    const T by = P == 5 ? n : n * x.tensor[0];
    const T moved = fma(k.neg_step, by, p);
    return select(k.first, p, fma(-k.decay, moved, moved));
  }
  template <int P, class V, class K>
  static GALLOP_FN void between(V& v, const K& k) {
    using N = typename V::Number;
    const N rms = sqrt(v.total(0) / v.elements());
    v.tensor(0, k.normalize != 0 ? N(1) / (rms + 1e-30) : N(1));
  }

  static constexpr unsigned stages = 7u;
  static void stage(int after, Linear& on, const Hyper& h) {
    constexpr int kMoment = 0, kSquares = 1, kGradient = 6, kTurned = 7;
    constexpr Linear::Sides kGrams{2, 3}, kBases{4, 5};
    if (after < 2) return on.rotate(kTurned, kBases, after == 1);
    on.add_grams(kGrams, kGradient, 1 - (h.shampoo_beta < 0 ? h.beta2 : h.shampoo_beta));
    on.change_bases(kBases, kGrams, kMoment, kSquares);
  }
  static GALLOP_FN Bases bases(const Hyper& h, Clock c) {
    const double t = c.t - 1, whole = floor(t / h.precondition_frequency) * h.precondition_frequency;
    return t == 0 ? Bases::make : t == whole ? Bases::refine : Bases::keep;
  }
};

}  // namespace gallop::rules
