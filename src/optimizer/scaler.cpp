// SPDX-License-Identifier: MIT
#include "gallop/scaler.h"

namespace gallop {

void GradScaler::update(bool found_inf) {
  if (found_inf) {
    scale *= backoff_factor;
    good_steps = 0;
  } else if (++good_steps == growth_interval) {
    scale *= growth_factor;
    good_steps = 0;
  }
}

}  // namespace gallop
