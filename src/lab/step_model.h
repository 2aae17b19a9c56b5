// SPDX-License-Identifier: MIT
// About how long a training step takes, by what it computes and moves.
#pragma once

#include <cstdint>

#include "gallop/types.h"
#include "gpt/trainer.h"
#include "lab/hardware.h"

namespace gallop::lab {

// What forward and backward of one batch do.
struct Work {
  double flops = 0;
  double bytes = 0;  // that are moved besides: activations between products, weights, logits
  int64_t layers = 0;
};

Work work_of(const gpt::Config& config, int64_t batch, int64_t time, gpt::Compute compute);

double peak_of(const Hardware& on, gpt::Compute compute);  // operations a second
double compute_seconds(const Work& work, const Hardware& on, gpt::Compute compute);

// One more forward.
inline constexpr double kRecomputation = 4.0 / 3;

// The part of a copy's speed that updates reach with state in this format.
double share_of_copy(StateFormat format, bool gpu);

// bytes: read and written. flops: of products of matrices, exact ones in fp32.
double update_seconds(double bytes, double share, double flops, bool exact, const Hardware& on);

}  // namespace gallop::lab
