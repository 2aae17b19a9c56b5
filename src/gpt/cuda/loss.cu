// SPDX-License-Identifier: MIT
#include <math.h>

#include <string>

#include "cuda/runtime.h"
#include "gallop/error.h"
#include "gpt/cuda/element.cuh"
#include "gpt/cuda/kernels.h"

namespace gallop::gpt::cuda {
namespace {

using gallop::cuda::check;

constexpr int kThreads = 512;

template <int V, class E>
__device__ __forceinline__ void read_row(const E* row, int64_t c, int64_t width, float (&x)[V]) {
  read<V>(row + c, x);
#pragma unroll
  for (int j = 1; j < V; ++j) x[j] = c + j < width ? x[j] : -INFINITY;
}

// A block takes a row: the largest logit and the sum of exponentials as it reads, both together,
// then the gradient. Columns behind the vocabulary, `width`, do not count.
template <class E, int V>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(Tokens on, int64_t first, E* logits, float* losses, int64_t width,
                         int64_t columns, bool gradient, const LossScale* scale) {
  __shared__ float room[2][kThreads / kWarp];
  const int64_t row = blockIdx.x;
  logits += row * columns;
  const int32_t target = on.targets[first + row];
  if (target < 0) {
    if (threadIdx.x == 0) losses[row] = 0;
    const float nothing[V] = {};
    for (int64_t c = threadIdx.x * V; gradient && c < columns; c += kThreads * V) {
      write<V>(nothing, logits + c);
    }
    return;
  }
  float most = -INFINITY, sum = 0;
  for (int64_t c = threadIdx.x * V; c < width; c += kThreads * V) {
    float x[V];
    read_row<V>(logits, c, width, x);
    float here = x[0];
#pragma unroll
    for (int j = 1; j < V; ++j) here = x[j] > here ? x[j] : here;
    if (here > most) {
      sum *= expf(most - here);
      most = here;
    }
#pragma unroll
    for (int j = 0; j < V; ++j) sum += expf(x[j] - most);
  }
  const float all = block_max<kThreads>(most, room[0]);
  sum = block_sum<kThreads>(most > -INFINITY ? sum * expf(most - all) : sum, room[1]);
  const float wanted = value(logits[target]);
  __syncthreads();  // everybody has read the target
  if (threadIdx.x == 0) losses[row] = logf(sum) + all - wanted;
  if (!gradient) return;
  const int32_t counted = on.counts[1];
  const float factor =
      (scale != nullptr ? scale->scale : 1.0f) / static_cast<float>(counted > 0 ? counted : 1);
  const float by = factor / sum;
  for (int64_t c = threadIdx.x * V; c < width; c += kThreads * V) {
    float x[V];
    read_row<V>(logits, c, width, x);
#pragma unroll
    for (int j = 0; j < V; ++j) x[j] = expf(x[j] - all) * by - (c + j == target ? factor : 0.0f);
    write<V>(x, logits + c);
  }
  const float nothing[V] = {};
  for (int64_t c = (width + V - 1) / V * V + threadIdx.x * V; c < columns; c += kThreads * V) {
    write<V>(nothing, logits + c);
  }
}

// A block takes a row and looks for a logit that comes before the target's.
template <class E, int V>
__global__ void __launch_bounds__(kThreads)
    hits_kernel(Tokens on, int64_t first, const E* logits, float* hits, int64_t width,
                int64_t columns) {
  __shared__ float room[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  logits += row * columns;
  const int32_t target = on.targets[first + row];
  const float wanted = target < 0 ? NAN : value(logits[target]);
  bool beaten = wanted != wanted;
  for (int64_t c = threadIdx.x * V; c < width && !beaten; c += kThreads * V) {
    float x[V];
    read_row<V>(logits, c, width, x);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      beaten = beaten || x[j] > wanted || (x[j] == wanted && c + j < target);
    }
  }
  const float any = block_max<kThreads>(beaten ? 1.0f : 0.0f, room);
  if (threadIdx.x == 0) hits[row] = 1 - any;
}

__global__ void __launch_bounds__(kThreads)
    mean_kernel(const float* values, int64_t rows, const int32_t* counts, float* mean) {
  __shared__ float room[kThreads / kWarp];
  float sum = 0;
  for (int64_t r = threadIdx.x; r < rows; r += kThreads) sum += values[r];
  sum = block_sum<kThreads>(sum, room);
  if (threadIdx.x == 0) *mean = sum / static_cast<float>(counts[1] > 0 ? counts[1] : 1);
}

__global__ void advance_kernel(LossScale* scale, const int64_t* skipped) {
  scale->advance(*skipped);
}

constexpr int kPack = 8;

void require_packs(Tensor logits) {
  if (logits.columns % kPack == 0) return;
  throw Error(ErrorCode::invalid_argument, "logits with " + std::to_string(logits.columns) +
                                               " columns, expected a multiple of " +
                                               std::to_string(kPack));
}

}  // namespace

void cross_entropy(const Tokens& on, int64_t first, Tensor logits, int64_t vocabulary,
                   Tensor losses, bool gradient, const LossScale* scale, void* stream) {
  require_packs(logits);
  with_element(logits.type, [&]<class E>(E) {
    check(launch(cross_entropy_kernel<E, kPack>, dim3(static_cast<unsigned>(logits.rows)),
                 dim3(kThreads), stream, on, first, logits.as<E>(), losses.as<float>(), vocabulary,
                 logits.columns, gradient, scale),
          "a loss");
  });
}

void find_hits(const Tokens& on, int64_t first, Tensor logits, int64_t vocabulary, Tensor hits,
               void* stream) {
  require_packs(logits);
  with_element(logits.type, [&]<class E>(E) {
    check(launch(hits_kernel<E, kPack>, dim3(static_cast<unsigned>(logits.rows)), dim3(kThreads),
                 stream, on, first, logits.as<const E>(), hits.as<float>(), vocabulary,
                 logits.columns),
          "an accuracy");
  });
}

void mean(const Tokens& on, Tensor values, Tensor mean, void* stream) {
  check(launch(mean_kernel, dim3(1), dim3(kThreads), stream, values.as<const float>(), values.rows,
               on.counts, mean.as<float>()),
        "a mean");
}

void advance(LossScale* scale, const int64_t* skipped, void* stream) {
  check(launch(advance_kernel, dim3(1), dim3(1), stream, scale, skipped), "scaling the loss");
}

}  // namespace gallop::gpt::cuda
