// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"
#include "rules/adam.h"

namespace gallop::rules {

// AdamW, arXiv:1711.05101: Adam whose weight decay multiplies the parameter before the step.
struct AdamW : Adam {
  static constexpr const char* name = "adamw";
  static constexpr const char* about =
      "AdamW: Adam with decoupled weight decay (Loshchilov & Hutter, arXiv:1711.05101)";
  static constexpr const char* formula =
      "m += (1-b1)(g-m); v = b2 v + (1-b2) g^2; "
      "p = p (1 - lr wd) - lr/(1-b1^t) m / (sqrt(v/(1-b2^t)) + eps)";
  struct Hyper {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2, amsgrad = 0;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"beta1", &Hyper::beta1, fraction()},
      {"beta2", &Hyper::beta2, fraction()}, {"eps", &Hyper::eps, at_least(0)},
      {"weight_decay", &Hyper::weight_decay, at_least(0)}, {"amsgrad", &Hyper::amsgrad, flag()}};

  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c) {
    Coef<double> k = Adam::coef({h.lr, h.beta1, h.beta2, h.eps, 0, h.amsgrad}, c);
    k.keep = 1 - h.lr * h.weight_decay;
    return k;
  }
};

}  // namespace gallop::rules
