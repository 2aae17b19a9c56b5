// SPDX-License-Identifier: MIT
#include <math.h>

#include "cuda/runtime.h"
#include "gpt/cuda/element.cuh"
#include "gpt/cuda/kernels.h"

namespace gallop::gpt::cuda {
namespace {

using gallop::cuda::check;

constexpr int kThreads = 128;

// A block takes a row of scores; those after its own position become zero.
template <class E>
__global__ void __launch_bounds__(kThreads) softmax_kernel(E* scores, int64_t time, float scale) {
  __shared__ float room[2][kThreads / kWarp];
  const int64_t row = blockIdx.x, n = row % time + 1;
  scores += row * time;
  float most = -INFINITY;
  for (int64_t c = threadIdx.x; c < n; c += kThreads) {
    const float x = value(scores[c]);
    most = x > most || x != x ? x : most;
  }
  most = block_max<kThreads>(most, room[0]);
  float sum = 0;
  for (int64_t c = threadIdx.x; c < n; c += kThreads) {
    sum += expf((value(scores[c]) - most) * scale);
  }
  const float by = 1.0f / block_sum<kThreads>(sum, room[1]);
  for (int64_t c = threadIdx.x; c < time; c += kThreads) {
    put(c < n ? expf((value(scores[c]) - most) * scale) * by : 0.0f, scores[c]);
  }
}

template <class E>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const E* p, E* dp, int64_t time, float scale) {
  __shared__ float room[kThreads / kWarp];
  const int64_t row = blockIdx.x, n = row % time + 1;
  p += row * time;
  dp += row * time;
  float along = 0;
  for (int64_t c = threadIdx.x; c < n; c += kThreads) along += value(p[c]) * value(dp[c]);
  along = block_sum<kThreads>(along, room);
  for (int64_t c = threadIdx.x; c < time; c += kThreads) {
    put(c < n ? value(p[c]) * (value(dp[c]) - along) * scale : 0.0f, dp[c]);
  }
}

}  // namespace

void causal_softmax(Tensor scores, int64_t time, float scale, void* stream) {
  with_element(scores.type, [&]<class E>(E) {
    check(launch(softmax_kernel<E>, dim3(static_cast<unsigned>(scores.rows)), dim3(kThreads),
                 stream, scores.as<E>(), time, scale),
          "attention");
  });
}

void causal_softmax_backward(Tensor p, Tensor dp, int64_t time, float scale, void* stream) {
  with_element(p.type, [&]<class E>(E) {
    check(launch(backward_kernel<E>, dim3(static_cast<unsigned>(p.rows)), dim3(kThreads), stream,
                 p.as<const E>(), dp.as<E>(), time, scale),
          "attention's gradient");
  });
}

}  // namespace gallop::gpt::cuda
