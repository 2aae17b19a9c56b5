// SPDX-License-Identifier: MIT
#include <algorithm>
#include <string>

#include "cuda/runtime.h"
#include "gallop/error.h"
#include "gpt/cuda/element.cuh"
#include "gpt/cuda/kernels.h"
#include "gpt/cuda/sizes.h"

namespace gallop::gpt::cuda {
namespace {

using gallop::cuda::check;

constexpr int kThreads = kNormWarps * kWarp;

// A thread holds R packs of V columns: pack i begins at column (i x threads + thread) x V.
template <int V>
__device__ __forceinline__ int64_t column(int i) {
  return (static_cast<int64_t>(i) * kThreads + threadIdx.x) * V;
}

template <class Y, int V, int R>
__global__ void __launch_bounds__(kThreads)
    norm_kernel(const float* x, const float* weight, const float* bias, Y* y, float* stats,
                int64_t width, bool rms, float epsilon) {
  __shared__ float room[2][kThreads / kWarp];
  const int64_t row = blockIdx.x;
  x += row * width;
  y += row * width;
  float held[R][V];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (column<V>(i) >= width) continue;
    read<V>(x + column<V>(i), held[i]);
#pragma unroll
    for (int j = 0; j < V; ++j) sum += held[i][j];
  }
  const float mean = rms ? 0.0f : block_sum<kThreads>(sum, room[0]) / static_cast<float>(width);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < R; ++i) {
    if (column<V>(i) >= width) continue;
#pragma unroll
    for (int j = 0; j < V; ++j) squares += (held[i][j] - mean) * (held[i][j] - mean);
  }
  const float variance = block_sum<kThreads>(squares, room[1]) / static_cast<float>(width);
  const float inverse = 1.0f / gallop::sqrt(variance + epsilon);
  if (threadIdx.x == 0) {
    stats[2 * row] = mean;
    stats[2 * row + 1] = inverse;
  }
#pragma unroll
  for (int i = 0; i < R; ++i) {
    const int64_t c = column<V>(i);
    if (c >= width) continue;
    float w[V], b[V] = {}, out[V];
    read<V>(weight + c, w);
    if (bias != nullptr) read<V>(bias + c, b);
#pragma unroll
    for (int j = 0; j < V; ++j) out[j] = (held[i][j] - mean) * inverse * w[j] + b[j];
    write<V>(out, y + c);
  }
}

struct Backward {
  const void* dy;
  void *narrow, *y;
  float* dx;
  const float *x, *plus, *stats, *weight, *bias;
  float* parts;  // of dweight, [blocks, width], then of dbias
  int64_t rows, width;
  bool rms;
};

// P threads take a row, as many rows at a time as a block has such groups, and those a grid apart;
// they add up what these give to each column.
template <class Y, int V, int R, int P>
__global__ void __launch_bounds__(kThreads) backward_kernel(Backward b) {
  constexpr int kAtOnce = kThreads / P;
  __shared__ float room[2][2][kThreads / kWarp];
  __shared__ float sums[kAtOnce == 1 ? 1 : kAtOnce][kAtOnce == 1 ? 1 : R * V * P];
  const int lane = static_cast<int>(threadIdx.x) % P, group = static_cast<int>(threadIdx.x) / P;
  const auto column_of = [&](int i) { return (static_cast<int64_t>(i) * P + lane) * V; };
  const float share = 1.0f / static_cast<float>(b.width);
  float dweight[R][V] = {}, dbias[R][V] = {};
  int turn = 0;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kAtOnce + group; row < b.rows;
       row += static_cast<int64_t>(gridDim.x) * kAtOnce, turn ^= 1) {
    const int64_t begin = row * b.width;
    const float* x = b.x + begin;
    const Y* dy = static_cast<const Y*>(b.dy) + begin;
    const float mean = b.stats[2 * row], inverse = b.stats[2 * row + 1];
    float normal[R][V], d[R][V], out[R][V];
#pragma unroll
    for (int i = 0; i < R; ++i) {  // all on their way before the first is waited for
      if (column_of(i) >= b.width) continue;
      read<V>(x + column_of(i), normal[i]);
      read<V>(dy + column_of(i), d[i]);
      if (b.plus != nullptr) read<V>(b.plus + begin + column_of(i), out[i]);
    }
    float plain = 0, along = 0;
#pragma unroll
    for (int i = 0; i < R; ++i) {
      if (column_of(i) >= b.width) continue;
      float w[V];
      read<V>(b.weight + column_of(i), w);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        normal[i][j] = (normal[i][j] - mean) * inverse;
        dweight[i][j] += d[i][j] * normal[i][j];
        dbias[i][j] += d[i][j];
        d[i][j] *= w[j];
        plain += d[i][j];
        along += d[i][j] * normal[i][j];
      }
    }
    if constexpr (P == kWarp) {
      plain = b.rms ? 0.0f : share * warp_sum(plain);
      along = share * warp_sum(along);
    } else {
      plain = b.rms ? 0.0f : share * block_sum<kThreads>(plain, room[turn][0]);
      along = share * block_sum<kThreads>(along, room[turn][1]);
    }
#pragma unroll
    for (int i = 0; i < R; ++i) {
      const int64_t c = column_of(i), at = begin + c;
      if (c >= b.width) continue;
      float y[V], w[V], bias[V] = {};
      read<V>(b.weight + c, w);
      if (b.bias != nullptr) read<V>(b.bias + c, bias);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const float g = inverse * (d[i][j] - plain - normal[i][j] * along);
        out[i][j] = b.plus != nullptr ? out[i][j] + g : g;
        y[j] = normal[i][j] * w[j] + bias[j];
      }
      write<V>(out[i], b.dx + at);
      if (b.narrow != nullptr) write<V>(out[i], static_cast<Y*>(b.narrow) + at);
      if (b.y != nullptr) write<V>(y, static_cast<Y*>(b.y) + at);
    }
  }
  const auto put_parts = [&](float(&of)[R][V], float* to) {
    if constexpr (kAtOnce > 1) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < R; ++i) {
#pragma unroll
        for (int j = 0; j < V; ++j) sums[group][column_of(i) + j] = of[i][j];
      }
      __syncthreads();
      for (int64_t c = threadIdx.x; c < b.width; c += kThreads) {
        float sum = sums[0][c];
        for (int g = 1; g < kAtOnce; ++g) sum += sums[g][c];
        to[c] = sum;
      }
    } else {
#pragma unroll
      for (int i = 0; i < R; ++i) {
        if (column_of(i) < b.width) write<V>(of[i], to + column_of(i));
      }
    }
  };
  put_parts(dweight, b.parts + blockIdx.x * b.width);
  if (b.bias != nullptr) {
    put_parts(dbias, b.parts + (static_cast<int64_t>(gridDim.x) + blockIdx.x) * b.width);
  }
}

// Sums of the blocks' parts, column by column: a warp's lanes are neighbouring columns, its
// block's warps take turns.
__global__ void __launch_bounds__(kThreads)
    parts_kernel(const float* parts, int64_t blocks, int64_t width, float* dweight, float* dbias,
                 bool add) {
  __shared__ float sums[kThreads / kWarp][kWarp];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float sum = 0;
  const float* from = parts + blockIdx.y * blocks * width;
  if (c < width) {
    for (int64_t i = warp; i < blocks; i += kThreads / kWarp) sum += from[i * width + c];
  }
  sums[warp][threadIdx.x % kWarp] = sum;
  __syncthreads();
  if (warp != 0 || c >= width) return;
  sum = 0;
  for (const auto& of : sums) sum += of[threadIdx.x];
  float* to = blockIdx.y == 0 ? dweight : dbias;
  to[c] = add ? to[c] + sum : sum;
}

// f.operator()<V, R>() for the packs that cover a row of a block's threads.
template <class F>
void with_packs(int64_t width, F f) {
  if (width % 4 != 0) {
    if (width <= 8 * kThreads) return f.template operator()<1, 8>();
    return f.template operator()<1, 48>();
  }
  if (width <= 2 * 4 * kThreads) return f.template operator()<4, 2>();
  if (width <= 3 * 4 * kThreads) return f.template operator()<4, 3>();
  if (width <= 5 * 4 * kThreads) return f.template operator()<4, 5>();
  return f.template operator()<4, 12>();
}

// The same for rows of backward: V, R and threads a row.
template <class F>
void with_rows(int64_t width, F f) {
  if (!norm_by_warps(width)) {
    return with_packs(width, [&]<int V, int R>() { f.template operator()<V, R, kThreads>(); });
  }
  if (width <= 3 * 4 * kWarp) return f.template operator()<4, 3, kWarp>();
  if (width <= 6 * 4 * kWarp) return f.template operator()<4, 6, kWarp>();
  return f.template operator()<4, 8, kWarp>();
}

// What blocks add to is fp32 whatever is multiplied: every other type would be a kernel more.
void require_residual(Tensor x) {
  if (x.type == DType::f32) return;
  throw Error(ErrorCode::unsupported,
              "a norm of " + std::string(to_string(x.type)) + " on a GPU, expected fp32");
}

unsigned narrow_to_unsigned(int64_t n) { return static_cast<unsigned>(n); }

}  // namespace

Extent norm_scratch(int64_t rows, int64_t width) {
  return {DType::f32, 2 * norm_blocks(rows, width), width};
}

void norm(Tensor x, Tensor weight, Tensor bias, Tensor y, Tensor stats, bool rms, float epsilon,
          void* stream) {
  require_residual(x);
  with_element(y.type, [&]<class Y>(Y) {
    with_packs(x.columns, [&]<int V, int R>() {
      check(launch(norm_kernel<Y, V, R>, dim3(narrow_to_unsigned(x.rows)), dim3(kThreads), stream,
                   x.as<const float>(), weight.as<const float>(), bias.as<const float>(), y.as<Y>(),
                   stats.as<float>(), x.columns, rms, epsilon),
            "a norm");
    });
  });
}

void norm_backward(const Ops::NormBackward& n, bool rms, void* stream) {
  const int64_t rows = n.x.rows, width = n.x.columns, blocks = norm_blocks(rows, width);
  Backward b{};
  b.x = n.x.as<const float>(), b.dy = n.dy.data, b.plus = n.plus.as<const float>();
  b.dx = n.dx.as<float>(), b.narrow = n.narrow.data, b.y = n.y.data;
  b.stats = n.stats.as<const float>();
  b.weight = n.weight.as<const float>(), b.bias = n.bias.as<const float>();
  b.parts = n.scratch.as<float>();
  b.rows = rows, b.width = width, b.rms = rms;
  require_residual(n.x);
  with_element(n.dy.type, [&]<class Y>(Y) {
    with_rows(width, [&]<int V, int R, int P>() {
      check(launch(backward_kernel<Y, V, R, P>, dim3(narrow_to_unsigned(blocks)), dim3(kThreads),
                   stream, b),
            "a norm's gradient");
    });
  });
}

void norm_weights(const Ops::NormBackward& n, void* stream) {
  const int64_t width = n.x.columns;
  const dim3 grid(narrow_to_unsigned((width + kWarp - 1) / kWarp), n.dbias ? 2u : 1u);
  check(launch(parts_kernel, grid, dim3(kThreads), stream, n.scratch.as<const float>(),
               norm_blocks(n.x.rows, width), width, n.dweight.as<float>(), n.dbias.as<float>(),
               n.add),
        "a norm's gradient");
}

}  // namespace gallop::gpt::cuda
