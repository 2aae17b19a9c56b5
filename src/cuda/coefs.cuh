// SPDX-License-Identifier: MIT
// What the kernels of every rule begin and end with: coefficients, and the count of steps.
#pragma once

#include "cuda/step.cuh"

namespace gallop::cuda {
namespace {

// What is the same for all elements of a tensor, in shared memory.
template <class R, class T>
struct Job {
  typename R::template Coef<T> coef;
  T scale, limit, factor;  // g -> clamp(g * scale, -limit, limit) * factor
  // Which step of which group `coef` is for.
  unsigned group;
  Clock clock;
  double scalars[detail::kMaxScalars];
};

template <class R>
inline constexpr bool kHasScalars = requires {
  typename R::Scalars;
};

// Coefficients in double. Not inlined: its registers would be those of every thread.
template <class R>
__device__ __noinline__ void coefs_of(const Group& group, long long group_steps, Clock clock,
                                      double* scalars, double* out) {
  typename R::Hyper h;
  memcpy(&h, group.hyper, sizeof h);
  clock.schedule = detail::schedule_factor(group.schedule, group_steps);
  h.lr *= clock.schedule;
  detail::CoefOf<R> k;
  if constexpr (kHasScalars<R>) {
    typename R::Scalars s;
    memcpy(static_cast<void*>(&s), scalars, sizeof s);
    k = R::coef(h, clock, s);
    memcpy(scalars, &s, sizeof s);
  } else {
    k = R::coef(h, clock);
  }
  memcpy(out, &k, sizeof k);
}

template <class R>
__device__ Clock clock_of(const Step& s, unsigned tensor, int entry) {
  constexpr bool per_group = detail::counting<R>() == Counting::per_group;
  const long long own = s.progress[tensor].steps;
  const long long done = per_group ? s.group_progress[s.tensors[tensor].group].steps : own;
  // Entries other than the step belong to the step that was last taken.
  const long long t = entry == 0 ? done + 1 : done > 1 ? done : 1;
  return {static_cast<double>(t), own == 0, 1};
}

template <class R>
__device__ const double* scalars_of(const Step& s, unsigned tensor) {
  constexpr bool per_group = detail::counting<R>() == Counting::per_group;
  return per_group ? s.group_progress[s.tensors[tensor].group].scalars : s.progress[tensor].scalars;
}

template <class R, int E, class T>
__device__ __forceinline__ void prepare_coefs(const Step& s, unsigned tensor, Job<R, T>& job) {
  const unsigned group = s.tensors[tensor].group;
  const Clock clock = clock_of<R>(s, tensor, E);
  const double* before = scalars_of<R>(s, tensor);
  bool same = job.group == group && job.clock.t == clock.t && job.clock.first == clock.first;
  if constexpr (kHasScalars<R>) {
    for (int i = 0; i < detail::kMaxScalars; ++i) same = same && job.scalars[i] == before[i];
  }
  if (same) return;
  job.group = group;
  job.clock = clock;
  for (int i = 0; i < detail::kMaxScalars; ++i) job.scalars[i] = before[i];
  double scalars[detail::kMaxScalars], coef[detail::kMaxCoefs];
  for (int i = 0; i < detail::kMaxScalars; ++i) scalars[i] = before[i];
  coefs_of<R>(s.groups[group], s.group_progress[group].steps, clock, scalars, coef);
  job.coef = detail::narrow<R, T>(coef);
}

template <class R, int E, class T>
__device__ void prepare(const Step& s, unsigned tensor, Job<R, T>& job) {
  prepare_coefs<R, E>(s, tensor, job);
  const Tensor& t = s.tensors[tensor];
  const Group& group = s.groups[t.group];
  double scale = (group.maximize ? -1 : 1) / grad_divisor(s), factor = 1;
  if (E == 0 && s.needs_norm) {
    factor = s.control->factor;
    if constexpr (requires(typename R::Hyper h) { R::clip(h, 1.0); }) {
      typename R::Hyper h;
      memcpy(&h, group.hyper, sizeof h);
      if (h.max_grad_norm > 0) factor *= R::clip(h, s.control->norm * s.control->factor);
    }
  }
  if (s.clip_value == 0) {
    scale *= factor;
    factor = 1;
  }
  job.scale = static_cast<T>(scale);
  job.limit = s.clip_value == 0 ? static_cast<T>(kInfinity) : static_cast<T>(s.clip_value);
  job.factor = static_cast<T>(factor);
}

// After the last block: steps and scalars advance. Everyone waits for this one block: what does
// not depend on one another is loaded at once.
template <class R>
__device__ void advance(const Step& s) {
  if constexpr (kHasScalars<R>) {
    for (unsigned i = threadIdx.x; i < s.member_count; i += blockDim.x) {
      const unsigned tensor = s.members[i];
      if (s.grads[tensor] == nullptr) continue;
      Progress& p = s.progress[tensor];
      const Tensor& t = s.tensors[tensor];
      double coef[detail::kMaxCoefs];
      coefs_of<R>(s.groups[t.group], s.group_progress[t.group].steps, clock_of<R>(s, tensor, 0),
                  p.scalars, coef);
      ++p.steps;
    }
  } else {
    // Several at a time: a block may be a single warp.
    constexpr int kAtOnce = 8;
    for (unsigned i = threadIdx.x; i < s.member_count; i += kAtOnce * blockDim.x) {
      unsigned tensor[kAtOnce];
      Progress* moving[kAtOnce];
      long long steps[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const unsigned at = i + static_cast<unsigned>(k) * blockDim.x;
        tensor[k] = s.members[at < s.member_count ? at : i];
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const bool is_there = i + static_cast<unsigned>(k) * blockDim.x < s.member_count;
        moving[k] = is_there && s.grads[tensor[k]] != nullptr ? s.progress + tensor[k] : nullptr;
        steps[k] = s.progress[tensor[k]].steps;
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (moving[k] != nullptr) moving[k]->steps = steps[k] + 1;
    }
  }
  if (!s.finish) return;
  if constexpr (kHasScalars<R>) __syncthreads();  // the tensors' scalars need the old count
  for (unsigned g = blockDim.x - 1 - threadIdx.x; g < s.group_count; g += blockDim.x) {
    Progress& p = s.group_progress[g];
    const long long steps = p.steps;
    if constexpr (kHasScalars<R> && detail::counting<R>() == Counting::per_group) {
      double coef[detail::kMaxCoefs];
      coefs_of<R>(s.groups[g], steps, {static_cast<double>(steps + 1), false, 1}, p.scalars, coef);
    }
    p.steps = steps + 1;
  }
}

// True in every thread of the block that is the last to come here.
__device__ inline bool last_block(Control& control) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(&control.ticket, 1u) == gridDim.x - 1;
    if (last) control.ticket = control.taken = 0;
  }
  __syncthreads();
  return last;
}

}  // namespace
}  // namespace gallop::cuda
