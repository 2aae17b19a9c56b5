// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gallop/policy.h"
#include "gallop/rules.h"
#include "gallop/scaler.h"
#include "gallop/schedule.h"
#include "gallop/types.h"

namespace gallop {

// One tensor to train. The memory is the caller's: contiguous, aligned to its element.
struct Param {
  std::string name;  // unique in the optimizer; its key in checkpoints
  std::vector<int64_t> shape;
  void* data = nullptr;
  void* grad = nullptr;  // null: this parameter is left out of a step
  DType dtype = DType::f32;
  DType grad_dtype = DType::f32;
  Role role = Role::other;
};

using Hyper = std::vector<std::pair<std::string, double>>;

struct GroupOptions {
  Hyper hyper;  // what is absent has the rule's default
  Schedule schedule;
  bool maximize = false;
  Rounding rounding = Rounding::nearest;  // of 16-bit parameters
  StatePolicy state = StateFormat::f32;   // by parameter; or one format for all
  // Of bf16 state. An average with beta 0.999 can never fall when rounded to nearest, hence the
  // default.
  Rounding state_rounding = Rounding::stochastic;
};

// Where optimizer state lives; the default takes zeroed pages from the system.
struct Allocator {
  void* (*allocate)(size_t bytes, void* context) = nullptr;  // at least 64-byte aligned
  void (*release)(void* memory, size_t bytes, void* context) = nullptr;
  void* context = nullptr;
};

struct Options {
  Device device;
  Mode mode = Mode::multi;
  // In mode compiled on the CPU: hyper-parameters are constants in the code, which is compiled anew
  // for other ones; lr is not, nor what changes from step to step.
  bool fold_hyper = false;
  int threads = 0;              // 0: GALLOP_NUM_THREADS, OMP_NUM_THREADS, or all CPUs
  uint64_t seed = 0;            // of stochastic rounding
  double clip_value = 0;        // clamp every gradient element to +-this; 0: off
  double clip_norm = 0;         // scale all gradients to this global L2 norm; 0: off
  bool zero_grad = false;       // zero each gradient in the pass that reads it
  bool skip_nonfinite = false;  // a NaN or Inf in any gradient skips the step
  Allocator allocator;
};

struct StepArgs {
  double grad_scale = 1;    // gradients are divided by this, and
  double accumulation = 1;  // by this: the number of backward passes added up in them
  bool found_inf = false;   // the caller already knows that this step must be skipped

  // On a GPU: the cudaStream_t to run on (null: the default stream), and values that are read there
  // when the step runs, so that they may change between replays of a captured step.
  void* stream = nullptr;
  const float* device_grad_scale = nullptr;  // divides gradients too
  const float* device_found_inf = nullptr;   // not zero: skip
};

// One state tensor of one parameter.
struct StateView {
  std::string name;
  void* data;
  DType dtype;   // fp32, bf16 or fp64; of quantised state: what it stands for, fp32
  int64_t size;  // elements
  int64_t bytes;
  StateFormat format = StateFormat::f32;
  bool nonneg = false;      // quantised without a sign
  float* scales = nullptr;  // of quantised state, one for every `block` elements
  int64_t block = 0;

  int64_t scale_count() const { return block == 0 ? 0 : (size + block - 1) / block; }
};

class Optimizer {
 public:
  explicit Optimizer(std::string_view rule, const Options& options = {});
  // With the rule in a file (see docs/own-rule.md), which is code: it is compiled, or taken from
  // the user's cache, and runs in this process.
  static Optimizer from_rule_file(const std::string& path, const Options& options = {});
  ~Optimizer();
  Optimizer(Optimizer&&) noexcept;
  Optimizer& operator=(Optimizer&&) noexcept;

  // Returns the group's index. Parameters are numbered in the order they were added.
  size_t add_group(std::vector<Param> params, const GroupOptions& options = {});

  // One update of every parameter that has a gradient. False: the step was skipped, and nothing
  // but skipped() has changed. With a scaler, gradients are unscaled, checked, and the scaler told.
  // On a GPU, step(args) only launches: it may be captured in a CUDA graph, returns true unless
  // args.found_inf is set, and skipped() tells. step(scaler) waits for the device.
  bool step(const StepArgs& args = {});
  bool step(GradScaler& scaler, double accumulation = 1);

  // The same in pieces, for updates inside backward and for shards. Norm and finiteness are taken
  // at begin_step over the gradients that are there then.
  bool begin_step(const StepArgs& args = {});
  void step_params(std::span<const size_t> params);
  void end_step();

  // A rule's further entry, such as sophiag's "hessian", on the current gradients.
  void run(std::string_view entry, const StepArgs& args = {});
  // Switch the parameters between what is trained and what is evaluated (schedule-free rules; no
  // effect for others). step() in eval mode throws.
  void train();
  void eval();

  void zero_grad();
  void reset_state();  // as if no step had been taken

  // Hyper-parameters may change between steps at no cost. lr is before the schedule.
  void set(size_t group, std::string_view knob, double value);
  void set_all(std::string_view knob, double value);
  double get(size_t group, std::string_view knob) const;
  double current_lr(size_t group) const;  // the next step's, with the schedule
  void set_schedule(size_t group, const Schedule& schedule);
  const Schedule& schedule(size_t group) const;

  void set_grad(size_t param, void* grad);
  void set_data(size_t param, void* data);
  // After the caller has written new values into 16-bit parameters: masters and remainders follow.
  void refresh_masters();

  const RuleInfo& rule() const;
  const Options& options() const;
  size_t groups() const;
  size_t size() const;  // number of parameters
  const Param& param(size_t i) const;
  size_t group_of(size_t param) const;
  std::vector<StateView> states(size_t param) const;
  StateFormat state_format(size_t param) const;  // what the policy chose
  // A state as fp32, whatever its format; waits for a GPU. Throws when there is none of that name.
  std::vector<float> state_values(size_t param, std::string_view state) const;
  const void* low_bits(size_t param) const;  // fp32 master or 16-bit remainder, else null
  // The next four wait for a GPU.
  int64_t steps(size_t param) const;  // updates this parameter has had
  int64_t skipped() const;
  // Where a device counts what skipped() says, for work that is queued behind a step; from the
  // first step on.
  const int64_t* skipped_at() const;
  // Elements whose quantised state was not finite and became zero, for a NaN or Inf in the
  // gradient, counted in every step; the others of their block are not affected.
  int64_t not_finite() const;
  double grad_norm() const;      // of the last step that needed it, before clipping; else 0
  std::string_view isa() const;  // instruction set of the kernels in use
  // Bytes a step reads and writes when every tensor is touched once and has a gradient.
  int64_t bytes_per_step() const;
  int64_t bytes_only_read() const;  // of these, in passes that write nothing
  int64_t state_bytes() const;
  // What add_group of these would add to it, without the memory: data may be null.
  int64_t state_bytes_of(std::span<const Param> params, const GroupOptions& options = {}) const;

  // safetensors; the key scheme is in docs/checkpoints.md. Both leave everything unchanged when
  // they throw.
  void save(const std::string& path) const;
  void load(const std::string& path);

  struct Impl;  // in src/optimizer/impl.h

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gallop
