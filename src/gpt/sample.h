// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpt/model.h"

namespace gallop::gpt {

struct SampleOptions {
  int64_t tokens = 100;
  double temperature = 1;  // 0: always the likeliest
  int64_t top_k = 0;       // among so many; 0: all
  uint64_t seed = 1;
};

// What the model writes after the prompt. It sees the last tokens that fit its sequences. The batch
// has a fixed shape: this one is in its first row, the others are computed for nothing.
std::vector<int32_t> sample(Model& model, std::span<const int32_t> prompt,
                            const SampleOptions& options);

// Throws what sample would, before there is a model.
void check_sample(const Config& config, std::span<const int32_t> prompt,
                  const SampleOptions& options);

// One token by these logits and a number in [0, 1).
int32_t choose(std::span<const double> logits, double uniform, const SampleOptions& options);

}  // namespace gallop::gpt
