// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace gallop {

// Dynamic loss scaling for fp16: multiply the loss by scale() before backward and give the scaler
// to Optimizer::step. Grows after growth_interval good steps in a row, backs off at a bad one.
struct GradScaler {
  double scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  int64_t good_steps = 0;  // since the last change

  // Never beyond what fp32 holds. constexpr: GPUs count for themselves.
  constexpr void update(bool found_inf) {
    constexpr double kMost = 0x1p127;
    if (found_inf) {
      scale *= backoff_factor;
      good_steps = 0;
    } else if (++good_steps == growth_interval) {
      if (scale * growth_factor <= kMost) scale *= growth_factor;
      good_steps = 0;
    }
  }
};

}  // namespace gallop
