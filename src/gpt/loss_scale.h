// SPDX-License-Identifier: MIT
// The factor of the loss that keeps fp16's gradients in its range, where the model computes.
#pragma once

#include <cstdint>

namespace gallop::gpt {

struct LossScale {
  float scale = 65536;
  int32_t good_steps = 0;  // since it last changed
  int64_t skipped = 0;     // steps that the optimizer had skipped when it was last asked

  static constexpr int32_t kGrowAfter = 2000;

  // After each step, with the steps that were skipped so far: halved for one more, doubled after
  // many without.
  constexpr void advance(int64_t skipped_now) {
    constexpr float kMost = 0x1p126f;
    if (skipped_now != skipped) {
      skipped = skipped_now;
      scale *= 0.5f;
      good_steps = 0;
    } else if (++good_steps == kGrowAfter) {
      if (scale <= kMost) scale *= 2;
      good_steps = 0;
    }
  }
};

}  // namespace gallop::gpt
