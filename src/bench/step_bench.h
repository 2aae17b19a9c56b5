// SPDX-License-Identifier: MIT
// Times optimizer steps: check first, then measure all contenders of a case side by side.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/sampler.h"
#include "bench/shapes.h"
#include "check/sweep.h"
#include "gallop/optimizer.h"
#include "lab/row.h"

namespace gallop::bench {

struct StepContender {
  std::string optimizer;
  Hyper hyper;
  Mode mode = Mode::multi;
  check::Formats formats{DType::f32, DType::f32, Rounding::nearest, StateFormat::f32,
                         Rounding::stochastic};
  double clip_norm = 0;
  bool zero_grad = false;
  // Not an optimizer step but its kernel called in a loop, on one thread: what a step's own work
  // is measured against. Plain fp32 only.
  bool bare = false;

  std::string_view mode_name() const { return bare ? "bare" : to_string(mode); }
};

struct StepBench {
  ShapeList shapes;
  std::vector<StepContender> contenders;
  int threads = 0;
  SamplerOptions sampler;
};

// One row per contender. Throws if a contender does not agree with the reference.
std::vector<lab::Row> run_step_bench(const StepBench& bench);

// Two steps over small tensors with the contender's mode, formats and threads, judged element by
// element; throws what is wrong.
void check_contender(const StepContender& c, size_t tensors, int threads);

}  // namespace gallop::bench
