// SPDX-License-Identifier: MIT
// The factor of the loss that keeps fp16's gradients in its range, where the model computes.
#pragma once

#include <cstdint>

#include "gallop/scaler.h"

namespace gallop::gpt {

struct LossScale {
  float scale = static_cast<float>(GradScaler().scale);
  int32_t good_steps = 0;  // since it last changed
  int64_t skipped = 0;     // steps that the optimizer had skipped when it was last asked

  // After each step, with the steps that were skipped so far.
  constexpr void advance(int64_t skipped_now) {
    GradScaler scaler;
    scaler.scale = static_cast<double>(scale);
    scaler.good_steps = good_steps;
    scaler.update(skipped_now != skipped);
    skipped = skipped_now;
    scale = static_cast<float>(scaler.scale);
    good_steps = static_cast<int32_t>(scaler.good_steps);
  }
};

}  // namespace gallop::gpt
