// SPDX-License-Identifier: MIT
// Whether a struct has what every rule has, one question at a time: a rule that is compiled at run
// time is asked them before anything is made of it.
#pragma once

#include "core/traits.h"

namespace gallop::parts {

template <class R>
concept name = requires {
  static_cast<const char*>(R::name);
};
template <class R>
concept about = requires {
  static_cast<const char*>(R::about);
};
template <class R>
concept formula = requires {
  static_cast<const char*>(R::formula);
};
template <class R>
concept hyper = requires {
  typename R::Hyper;
};
template <class R>
concept knobs = requires {
  R::knobs[0].field;
};
template <class R>
concept states = requires {
  R::states[0].name;
};
template <class R>
concept coefs = requires {
  sizeof(typename R::template Coef<double>);
};
template <class R>
concept coef = requires {
  R::coef;
};

}  // namespace gallop::parts
