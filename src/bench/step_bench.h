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
  // Its state's format is not looked at: see `state`.
  check::Formats formats{DType::f32, DType::f32, Rounding::nearest, StateFormat::f32,
                         Rounding::stochastic};
  StatePolicy state = StateFormat::f32;
  std::string state_text = {};  // what it was asked for as; empty: the policy
  double clip_norm = 0;
  double grad_scale = 1;  // gradients are this many times larger, and unscaled in the step
  bool zero_grad = false;
  bool fold_hyper = false;  // of mode compiled
  // Not an optimizer step but its kernel called in a loop, on one thread: what a step's own work
  // is measured against. Plain fp32 only.
  bool bare = false;

  std::string state_name() const { return state_text.empty() ? to_string(state) : state_text; }
  std::string_view mode_name() const { return bare ? "bare" : to_string(mode); }
};

struct StepBench {
  ShapeList shapes;
  std::vector<StepContender> contenders;
  int threads = 0;
  SamplerOptions sampler;
  Device device;
  bool cold = false;  // on a GPU: the L2 cache is overwritten before every step that is timed
};

// One row per contender. Throws if a contender does not agree with the reference.
std::vector<lab::Row> run_step_bench(const StepBench& bench);

// Two steps over small tensors with the contender's mode, formats and threads, judged element by
// element; throws what is wrong.
void check_contender(const StepContender& c, size_t tensors, int threads, Device device = {});

// The same on a GPU: timed by its own events, with host time, launches and a replayed graph.
std::vector<lab::Row> run_gpu_step_bench(const StepBench& bench);

// GB/s, read and written, of copies of 2 GiB within a GPU's memory.
double measure_gpu_copy(int device);

GroupOptions group_options(const StepContender& c);
// Every knob of the contender's rule, in order.
std::vector<double> knob_values(const StepContender& c);
Options step_options(const StepContender& c, int threads, Device device);
lab::Row result_row(const StepContender& c, const StepBench& bench, const Optimizer& o,
                    const Measurement& m);

}  // namespace gallop::bench
