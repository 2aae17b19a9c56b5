// SPDX-License-Identifier: MIT
#pragma once

#include "core/matrices.h"
#include "rules/adamw.h"

namespace gallop::rules {

// Hidden matrices by Muon, everything else by AdamW. Tensors of three dimensions are matrices one
// after the other; those of more are flattened to their first dimension by the rest.
struct Muon {
  static constexpr const char* name = "muon";
  static constexpr const char* about = "Muon (Jordan et al. 2024; scaled as torch.optim.Muon does)";
  static constexpr const char* formula =
      "m = momentum m + (1-momentum) g; u = nesterov ? lerp(g, m, momentum) : m; X = u / |u|; "
      "ns_steps times: A = X X^T, X = a X + (b A + c A A) X; p = p (1 - lr wd) - lr adjusted X; "
      "embeddings, heads, norms, biases: AdamW";
  static constexpr State states[] = {
      {.name = "momentum_buffer", .only = Only::matrices},
      {.name = "update", .only = Only::matrices, .scratch = true},
      {.name = "exp_avg", .only = Only::vectors},
      {.name = "exp_avg_sq", .sign = Sign::nonneg, .only = Only::vectors}};
  struct Hyper {
    double lr = 1e-3, weight_decay = 0.1, momentum = 0.95, nesterov = 1, a = 3.4445, b = -4.775,
           c = 2.0315, eps = 1e-7, ns_steps = 5, adjust_lr_fn = 0, adam_lr = 3e-4,
           adam_beta1 = 0.9, adam_beta2 = 0.95, adam_eps = 1e-10, adam_weight_decay = 0;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"weight_decay", &Hyper::weight_decay, at_least(0)},
      {"momentum", &Hyper::momentum, fraction()}, {"nesterov", &Hyper::nesterov, flag()},
      {"ns_coefficient1", &Hyper::a, above(-kInfinity), "of X in a step of Newton-Schulz"},
      {"ns_coefficient2", &Hyper::b, above(-kInfinity), "of X X^T X"},
      {"ns_coefficient3", &Hyper::c, above(-kInfinity), "of X X^T X X^T X"},
      {"eps", &Hyper::eps, at_least(0), "an update's norm counts as at least this"},
      {"ns_steps", &Hyper::ns_steps, {0, 99, true, true, true}, "steps of Newton-Schulz"},
      {"adjust_lr_fn", &Hyper::adjust_lr_fn, flag(),
       "lr times sqrt(max(1, rows/columns)) as Jordan, or 0.2 sqrt(max(rows, columns))",
       "original|match_rms_adamw"},
      {"adam_lr", &Hyper::adam_lr, at_least(0), "AdamW's, under the same schedule as lr"},
      {"adam_beta1", &Hyper::adam_beta1, fraction()},
      {"adam_beta2", &Hyper::adam_beta2, fraction()},
      {"adam_eps", &Hyper::adam_eps, at_least(0)},
      {"adam_weight_decay", &Hyper::adam_weight_decay, at_least(0)}};

  static constexpr Sum sums[] = {{Over::row, 1u}};  // |u|^2
  static constexpr Pass passes[] = {
      {.reads = 1u, .writes = 3u, .param = false, .only = Only::matrices},
      {.reads = 2u, .writes = kWritesParam, .grad = false, .only = Only::matrices},
      {.reads = 12u, .writes = kWritesParam | 12u, .only = Only::vectors}};
  static constexpr Values values{1, 1, 0};  // -lr adjusted; 1/|u| of the row's matrix
  static View view(Form f) {
    if (!f.inner) return {1, 1, f.n, false};
    if (f.dims < 2) {
      return {.batches = 1, .rows = 1, .columns = f.n, .matrix = false,
              .misfit = "muon is for matrices; give what is none a role (bias, norm, embedding or "
                        "head) and AdamW updates it"};
    }
    const bool batched = f.dims == 3;
    const long long batches = batched ? f.shape[0] : 1, rows = f.shape[batched ? 1 : 0];
    return {batches, rows, f.n / batches / rows, true};
  }

  template <class T> struct Coef {
    T w, nesterov, eps, lr, decay, match_rms;
    AdamW::Coef<T> adam;
  };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c) {
    return {1 - h.momentum, h.nesterov, h.eps, h.lr, 1 - h.lr * h.weight_decay, h.adjust_lr_fn,
            AdamW::coef({h.adam_lr * c.schedule, h.adam_beta1, h.adam_beta2, h.adam_eps,
                         h.adam_weight_decay, 0}, c)};
  }
  template <int P, bool, class T, class K, class X>
  static GALLOP_FN T pass(T p, T g, T (&s)[4], const K& k, const X& x, T (&sum)[1]) {
    auto& [buffer, update, m, v] = s;
    if constexpr (P == 0) {
      buffer = lerp(buffer, g, k.w);
      update = select(k.nesterov, lerp(buffer, g, k.w), buffer);
      sum[0] = update * update;
      return p;
    }
    if constexpr (P == 1) return fma(x.tensor[0], update, p * k.decay);
    T adam[3] = {m, v, T(0)};
    p = AdamW::update(p, g, adam, k.adam);
    m = adam[0];
    v = adam[1];
    return p;
  }
  template <int P, class V, class K>
  static GALLOP_FN void between(V& v, const K& k) {
    if (!v.matrix()) return;
    const auto rows = static_cast<double>(v.rows()), columns = static_cast<double>(v.columns());
    v.tensor(0, -k.lr * (k.match_rms != 0 ? 0.2 * sqrt(max(rows, columns))
                                          : sqrt(max(1.0, rows / columns))));
    v.for_batches([&](long long b) {
      const auto norm = sqrt(v.sum_rows(b, [&](long long r) { return v.row_sum(0, r); }));
      v.for_rows(b, [&](long long r) { v.row(0, r, 1 / max(norm, k.eps)); });
    });
  }

  static constexpr bool needs_matrix = true;
  static constexpr unsigned stages = 1u;
  static void stage(int, Linear& on, const Hyper& h) {
    constexpr int kUpdate = 1;
    on.scale_rows(kUpdate, 0);
    for (int i = 0; i < static_cast<int>(h.ns_steps); ++i) {
      on.gram(Linear::square1, kUpdate);
      on.polynomial(Linear::square2, h.b, h.c, Linear::square1);
      on.apply(kUpdate, h.a, Linear::square2);
    }
  }
};

}  // namespace gallop::rules
