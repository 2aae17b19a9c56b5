// SPDX-License-Identifier: MIT
// torch's attention on a GPU, each backend by itself, by benchmarks/baselines/torch_attention.py.
#pragma once

#include <string>
#include <vector>

#include "gpt/ops.h"
#include "lab/row.h"

namespace gallop::lab {

struct TorchAttentionQuestion {
  std::vector<gpt::AttentionShape> shapes;
  std::vector<std::string> precisions;  // bf16, fp16, fp32; others are left out
  int device = 0;
  double time_limit_s = 0.1;  // for each figure, of which a row has four
};

void require_torch();  // throws when python has none

// A row for each shape, precision and backend with the fields of bench attention's; fewer, and a
// note of why, if torch ends early.
std::vector<Row> torch_attention(const TorchAttentionQuestion& question,
                                 std::vector<std::string>& notes);

}  // namespace gallop::lab
