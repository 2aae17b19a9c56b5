// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// Schedule-Free AdamW, arXiv:2405.15682. The parameter holds y while training; `eval` turns it into
// the average x, `train` back into y. beta1 interpolates between x and z; it is no moment.
struct ScheduleFreeAdamW {
  static constexpr const char* name = "schedulefree_adamw";
  static constexpr const char* about = "Schedule-Free AdamW (Defazio et al., arXiv:2405.15682)";
  static constexpr const char* formula =
      "v = b2 v + (1-b2) g^2; n = g / (sqrt(v/(1-b2^t)) + eps) + wd y; "
      "y = (1-c) y + c z + lr (b1 (1-c) - 1) n; z -= lr n";
  static constexpr State states[] = {{"z", Sign::any, nullptr, true},
                                     {"exp_avg_sq", Sign::nonneg},
                                     {"exp_avg", Sign::any, "inner_momentum"}};
  static constexpr Entry entries[] = {
      {"step", ~0u}, {"eval", kWritesParam, false}, {"train", kWritesParam, false}};
  static constexpr Counting counting = Counting::per_group;
  struct Hyper {
    double lr = 2.5e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, warmup_steps = 0,
           r = 0, weight_lr_power = 2, inner_momentum = 0;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"beta1", &Hyper::beta1, {0, 1, false, true}},
      {"beta2", &Hyper::beta2, fraction()}, {"eps", &Hyper::eps, at_least(0)},
      {"weight_decay", &Hyper::weight_decay, at_least(0)},
      {"warmup_steps", &Hyper::warmup_steps, count()},
      {"r", &Hyper::r, at_least(0), "weight of step t in the average grows as t^r"},
      {"weight_lr_power", &Hyper::weight_lr_power, at_least(0)},
      {"inner_momentum", &Hyper::inner_momentum, fraction()}};
  struct Scalars { double weight_sum = 0, lr_max = -1; };
  static constexpr const char* scalars[] = {"weight_sum", "lr_max"};

  template <class T>
  struct Coef {
    T first, beta2, w2, mu, w_mu, unbias_mu, rsqrt_bc2, eps, wd, c, y_step, neg_lr, to_x, to_y;
  };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c, Scalars& s) {
    const double lr = h.lr * (c.t < h.warmup_steps ? c.t / h.warmup_steps : 1);
    s.lr_max = lr > s.lr_max ? lr : s.lr_max;
    const double weight = pow(c.t, h.r) * pow(s.lr_max, h.weight_lr_power);
    s.weight_sum += weight;
    const double share = s.weight_sum != 0 ? weight / s.weight_sum : 0;
    return {c.first ? 1.0 : 0.0, h.beta2, 1 - h.beta2, h.inner_momentum, 1 - h.inner_momentum,
            1 / (1 - pow(h.inner_momentum, c.t)), 1 / sqrt(1 - pow(h.beta2, c.t)), h.eps,
            h.weight_decay, share, lr * (h.beta1 * (1 - share) - 1), -lr, 1 - 1 / h.beta1,
            1 - h.beta1};
  }
  template <int E, class T, class K>
  static GALLOP_FN T update(T y, T g, T (&s)[3], const K& k) {
    auto& [z, v, e] = s;
    if constexpr (E == 1) return lerp(y, z, k.to_x);
    if constexpr (E == 2) return lerp(y, z, k.to_y);
    z = select(k.first, y, z);
    v = fma(k.beta2, v, k.w2 * (g * g));
    e = fma(k.mu, e, k.w_mu * g);
    const T n = fma(y, k.wd, e * k.unbias_mu / fma(sqrt(v), k.rsqrt_bc2, k.eps));
    const T y_next = fma(n, k.y_step, lerp(y, z, k.c));
    z = fma(n, k.neg_lr, z);
    return y_next;
  }
};

}  // namespace gallop::rules
