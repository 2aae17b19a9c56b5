// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// Stochastic gradient descent with momentum, as torch.optim.SGD.
struct Sgd {
  static constexpr const char* name = "sgd";
  static constexpr const char* about = "SGD with momentum (torch.optim.SGD)";
  static constexpr const char* formula =
      "g += wd p; b = momentum b + (1-dampening) g; p -= lr (nesterov ? g + momentum b : b)";
  static constexpr State states[] = {{"momentum_buffer", Sign::any, "momentum"}};
  struct Hyper { double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0, nesterov = 0; };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"momentum", &Hyper::momentum, at_least(0)},
      {"dampening", &Hyper::dampening, between(0, 1)},
      {"weight_decay", &Hyper::weight_decay, at_least(0)}, {"nesterov", &Hyper::nesterov, flag()}};
  static constexpr const char* reject(const Hyper& h) {
    return h.nesterov != 0 && (h.momentum == 0 || h.dampening != 0)
               ? "nesterov needs momentum > 0 and dampening = 0"
               : nullptr;
  }

  template <class T> struct Coef { T weight_decay, momentum, damp, nesterov, neg_lr; };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock c) {
    return {h.weight_decay, h.momentum, c.first || h.momentum == 0 ? 1 : 1 - h.dampening,
            h.nesterov, -h.lr};
  }
  template <class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[1], const K& k) {
    auto& [b] = s;
    g = fma(k.weight_decay, p, g);
    b = fma(k.momentum, b, k.damp * g);
    return fma(k.neg_lr, select(k.nesterov, fma(k.momentum, b, g), b), p);
  }
};

}  // namespace gallop::rules
