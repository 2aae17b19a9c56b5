// SPDX-License-Identifier: MIT
// What lies in device memory and what a launch is given. Plain data for host and device.
#pragma once

#include "core/random.h"
#include "core/schedule_factor.h"
#include "core/traits.h"
#include "cpu/kernel.h"

namespace gallop::cuda {

using cpu::Index;

inline constexpr int kThreads = 512;    // of every block
inline constexpr int kBlocksPerSm = 2;  // at least: 64 registers a thread
// With quantised states arithmetic takes as long as memory: blocks of one warp, so that none waits
// for another.
inline constexpr int kCodeThreads = 32, kCodeBlocksPerSm = 16, kOwnBlocksPerSm = 20;
inline constexpr int kMaxKnobs = 32;

// A parameter; its gradient's pointer stands apart, since that may change from step to step.
struct Tensor {
  void* param;
  void* low;
  void* state[detail::kMaxStates];
  float* scale[detail::kMaxStates];  // of quantised states
  Index n;
  Bits64 id;
  unsigned group;
  Storage param_storage, grad_storage, state_storage[detail::kMaxStates];
  bool aligned;  // every pointer above but the scales' to 16 bytes
  bool resets;   // as bitsandbytes does where a gradient is not finite
};

// How far a parameter or a group has come. Advanced by the device alone.
struct Progress {
  long long steps;
  double scalars[detail::kMaxScalars];
};

struct Group {
  double hyper[kMaxKnobs];  // the rule's Hyper, member by member
  detail::ScheduleData schedule;
  bool maximize;
};

// A piece of a tensor: elements [index * chunk_elements, ...).
struct Chunk {
  unsigned tensor, index;
};

// What a step finds out on the way.
struct Control {
  Bits64 seed;    // of stochastic rounding
  double norm;    // of all gradients, unscaled
  double factor;  // of global-norm clipping
  long long skipped;
  Bits64 not_finite;  // elements whose quantised state, or gradient if it resets, was not
  int skip;           // this step is to be skipped
  unsigned ticket;    // blocks that have finished
  unsigned taken;     // chunks handed out
};

// One launch.
struct Step {
  const Tensor* tensors;
  void* const* grads;
  const Group* groups;
  Progress* progress;
  Progress* group_progress;
  Control* control;
  const Chunk* chunks;
  const unsigned* members;  // the tensors of this launch
  double* partials;         // one per chunk, for sums
  Index chunk_elements;
  unsigned first_chunk, last_chunk, member_count, group_count;
  bool finish;     // the last launch of its step
  bool zero_grad;  // in the same pass
  bool needs_norm, skip_nonfinite;
  double divisor;                // of the gradients
  const float* grad_scale;       // on the device, divides them too; or null
  const float* found_inf;        // on the device, not zero: skip; or null
  double clip_value, clip_norm;  // 0: off
};

// What mode unfused is told of a tensor, in doubles: its coefficients, then these two.
inline constexpr int kScaleAt = detail::kMaxCoefs, kFactorAt = kScaleAt + 1,
                     kNumbers = kFactorAt + 1;

using cpu::Path;

// How parameter and gradient lie in memory, where kernels are compiled for it.
enum class Elements { f32, bf16, any };

// Which of a rule's kernels a tensor needs: as on the CPU, and those for which every state that may
// be is in one of gallop's own formats.
enum class Kind {
  f32,
  f64,
  blocks,
  quantised,
  own8,
  own8_bf16,
  own8_any,
  own4,
  own4_bf16,
  own4_any
};
inline constexpr int kKinds = 10;
constexpr bool is_own(Kind k) { return k >= Kind::own8; }
constexpr bool is_4_bit(Kind k) { return k >= Kind::own4; }
constexpr Elements elements_of(Kind own) {
  return static_cast<Elements>((static_cast<int>(own) - static_cast<int>(Kind::own8)) % 3);
}
constexpr Kind own_kind(bool four, Elements e) {
  return static_cast<Kind>(static_cast<int>(four ? Kind::own4 : Kind::own8) + static_cast<int>(e));
}
constexpr Path path_of(Kind k) { return is_own(k) ? Path::quantised : static_cast<Path>(k); }
constexpr int threads_of(Kind k) { return path_of(k) == Path::quantised ? kCodeThreads : kThreads; }
constexpr int blocks_per_sm(Kind k) {
  if (k == Kind::f64) return 1;
  return is_own(k) ? kOwnBlocksPerSm : k == Kind::quantised ? kCodeBlocksPerSm : kBlocksPerSm;
}

struct RuleKernels {
  const void* const* table;  // kernels of one Step: [entry][variant][kind]
  const void* const* coefs;  // kernels of (Step, double* out): [entry]
  // Of a rule with norms, table holds kernels of one NormStep: [pass][variant][kind].
  const void* const* between;  // kernels of one NormStep: [pass]
  const void* look_at_bases;   // kernel of (NormStep, int* out), of a rule that has some; or null
};

}  // namespace gallop::cuda
