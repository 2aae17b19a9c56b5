// SPDX-License-Identifier: MIT
#pragma once

#include "core/rule.h"

namespace gallop::rules {

// Quasi-hyperbolic momentum, arXiv:1810.06801: a weighted step of plain and momentum SGD.
struct Qhm {
  static constexpr const char* name = "qhm";
  static constexpr const char* about = "QHM (Ma & Yarats, arXiv:1810.06801; qhoptim)";
  static constexpr const char* formula =
      "b = momentum b + (1-momentum) g; p -= lr (nu b + (1-nu) g)";
  static constexpr State states[] = {{"momentum_buffer"}};
  struct Hyper {
    double lr = 1.0, momentum = 0.999, nu = 0.7, weight_decay = 0, weight_decay_type = 0;
  };
  static constexpr Knob<Hyper> knobs[] = {
      {"lr", &Hyper::lr, at_least(0)}, {"momentum", &Hyper::momentum, at_least(0)},
      {"nu", &Hyper::nu, at_least(0)}, {"weight_decay", &Hyper::weight_decay, at_least(0)},
      {"weight_decay_type", &Hyper::weight_decay_type, flag(), "", "grad|direct"}};

  template <class T> struct Coef { T l2, keep, momentum, w, neg_lr_nu, neg_lr_rest; };
  static GALLOP_FN Coef<double> coef(const Hyper& h, Clock) {
    const bool direct = h.weight_decay_type != 0;
    return {direct ? 0 : h.weight_decay, direct ? 1 - h.lr * h.weight_decay : 1, h.momentum,
            1 - h.momentum, -h.lr * h.nu, -h.lr * (1 - h.nu)};
  }
  template <class T, class K>
  static GALLOP_FN T update(T p, T g, T (&s)[1], const K& k) {
    auto& [b] = s;
    g = fma(k.l2, p, g);
    b = fma(k.momentum, b, k.w * g);
    return fma(k.neg_lr_rest, g, fma(k.neg_lr_nu, b, p * k.keep));
  }
};

}  // namespace gallop::rules
