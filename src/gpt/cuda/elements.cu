// SPDX-License-Identifier: MIT
#include <algorithm>

#include "cuda/runtime.h"
#include "gpt/cuda/element.cuh"
#include "gpt/cuda/kernels.h"

namespace gallop::gpt::cuda {
namespace {

using gallop::cuda::check;

constexpr int kThreads = 256, kSumThreads = 1024;

__device__ __forceinline__ int64_t index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

dim3 blocks_for(int64_t threads) {
  return dim3(static_cast<unsigned>(std::max<int64_t>((threads + kThreads - 1) / kThreads, 1)));
}

// Packs of as many elements as fill 16 bytes of the narrowest, where rows allow it.
template <class F>
void with_pack(int64_t multiple, F f) {
  if (multiple % 8 == 0) return f.template operator()<8>();
  if (multiple % 4 == 0) return f.template operator()<4>();
  return f.template operator()<1>();
}

template <class X, class Y, int V>
__global__ void add_kernel(const X* x, const Y* y, X* sum, int64_t n) {
  const int64_t i = index() * V;
  if (i >= n) return;
  float a[V], b[V];
  read<V>(x + i, a);
  read<V>(y + i, b);
#pragma unroll
  for (int j = 0; j < V; ++j) a[j] += b[j];
  write<V>(a, sum + i);
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// x sigmoid(2 u) is 0.5 x (1 + tanh(u)).
constexpr float kGelu = 2 * 0.7978845608f, kCubic = 0.044715f;

template <class E, int V>
__global__ void gelu_kernel(const E* f, E* h, int64_t n) {
  const int64_t i = index() * V;
  if (i >= n) return;
  float x[V];
  read<V>(f + i, x);
#pragma unroll
  for (int j = 0; j < V; ++j) x[j] *= sigmoid(kGelu * (x[j] + kCubic * x[j] * x[j] * x[j]));
  write<V>(x, h + i);
}

template <class E, int V>
__global__ void gelu_backward_kernel(E* f, const E* dh, E* h, int64_t n) {
  const int64_t i = index() * V;
  if (i >= n) return;
  float x[V], d[V];
  read<V>(f + i, x);
  read<V>(dh + i, d);
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const float s = sigmoid(kGelu * (x[j] + kCubic * x[j] * x[j] * x[j]));
    d[j] *= s + x[j] * s * (1 - s) * kGelu * (1 + 3 * kCubic * x[j] * x[j]);
    x[j] *= s;
  }
  write<V>(d, f + i);
  write<V>(x, h + i);
}

// Rows are the grid's x, columns its y: no division.
constexpr int kRowThreads = 128;

__device__ __forceinline__ int64_t column() {
  return static_cast<int64_t>(blockIdx.y) * kRowThreads + threadIdx.x;
}

dim3 rows_by(int64_t rows, int64_t threads) {
  return dim3(static_cast<unsigned>(rows),
              static_cast<unsigned>((threads + kRowThreads - 1) / kRowThreads));
}

// f: gates, then what they let through, in each row.
template <class E, int V>
__global__ void swiglu_kernel(const E* f, E* h, int64_t hidden) {
  const int64_t c = column() * V;
  if (c >= hidden) return;
  const int64_t at = 2 * hidden * blockIdx.x + c, i = hidden * blockIdx.x + c;
  float gate[V], up[V];
  read<V>(f + at, gate);
  read<V>(f + at + hidden, up);
#pragma unroll
  for (int j = 0; j < V; ++j) gate[j] *= sigmoid(gate[j]) * up[j];
  write<V>(gate, h + i);
}

template <class E, int V>
__global__ void swiglu_backward_kernel(E* f, const E* dh, E* h, int64_t hidden) {
  const int64_t c = column() * V;
  if (c >= hidden) return;
  const int64_t at = 2 * hidden * blockIdx.x + c, i = hidden * blockIdx.x + c;
  float gate[V], up[V], d[V], through[V];
  read<V>(f + at, gate);
  read<V>(f + at + hidden, up);
  read<V>(dh + i, d);
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const float s = sigmoid(gate[j]), silu = gate[j] * s;
    through[j] = silu * up[j];
    const float dup = d[j] * silu;
    gate[j] = d[j] * up[j] * (s + silu * (1 - s));
    up[j] = dup;
  }
  write<V>(gate, f + at);
  write<V>(up, f + at + hidden);
  write<V>(through, h + i);
}

// V elements are pairs to turn; queries and keys lie side by side at the start of a row.
template <class E, int V>
__global__ void rope_kernel(E* qkv, const float* turns, int time, int both, int width,
                            float direction) {
  const int c = static_cast<int>(column()) * V;
  if (c >= both) return;
  E* at = qkv + static_cast<int64_t>(blockIdx.x) * (both / 2 * 3) + c;
  float x[V], t[V];
  read<V>(at, x);
  read<V>(turns + static_cast<int>(blockIdx.x) % time * width + c % width, t);
#pragma unroll
  for (int j = 0; j < V; j += 2) {
    const float cosine = t[j], sine = direction * t[j + 1];
    const float a = x[j], b = x[j + 1];
    x[j] = a * cosine - b * sine;
    x[j + 1] = a * sine + b * cosine;
  }
  write<V>(x, at);
}

// A block takes 32 columns; its warps take rows in turns, several under way at a time.
template <class X, class S>
__global__ void __launch_bounds__(kSumThreads)
    column_sums_kernel(const X* x, S* sums, int64_t rows, int64_t columns, bool add) {
  __shared__ float parts[kSumThreads / kWarp][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (c < columns) {
#pragma unroll 8
    for (int64_t r = warp; r < rows; r += kSumThreads / kWarp) sum += value(x[r * columns + c]);
  }
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || c >= columns) return;
  sum = add ? value(sums[c]) : 0.0f;
  for (const auto& part : parts) sum += part[lane];
  put(sum, sums[c]);
}

}  // namespace

void add(Tensor x, Tensor y, Tensor sum, void* stream) {
  const int64_t n = x.elements();
  with_element(x.type, [&]<class X>(X) {
    with_element(y.type, [&]<class Y>(Y) {
      with_pack(n, [&]<int V>() {
        check(launch(add_kernel<X, Y, V>, blocks_for(n / V), dim3(kThreads), stream,
                     x.as<const X>(), y.as<const Y>(), sum.as<X>(), n),
              "a sum");
      });
    });
  });
}

void activation(Tensor f, Tensor h, bool swiglu, void* stream) {
  const int64_t n = h.elements();
  with_element(f.type, [&]<class E>(E) {
    with_pack(h.columns, [&]<int V>() {
      if (swiglu) {
        check(launch(swiglu_kernel<E, V>, rows_by(h.rows, h.columns / V), dim3(kRowThreads), stream,
                     f.as<const E>(), h.as<E>(), h.columns),
              "an activation");
      } else {
        check(launch(gelu_kernel<E, V>, blocks_for(n / V), dim3(kThreads), stream, f.as<const E>(),
                     h.as<E>(), n),
              "an activation");
      }
    });
  });
}

void activation_backward(Tensor f, Tensor dh, Tensor h, bool swiglu, void* stream) {
  const int64_t n = h.elements();
  with_element(f.type, [&]<class E>(E) {
    with_pack(h.columns, [&]<int V>() {
      if (swiglu) {
        check(launch(swiglu_backward_kernel<E, V>, rows_by(h.rows, h.columns / V),
                     dim3(kRowThreads), stream, f.as<E>(), dh.as<const E>(), h.as<E>(), h.columns),
              "an activation's gradient");
      } else {
        check(launch(gelu_backward_kernel<E, V>, blocks_for(n / V), dim3(kThreads), stream,
                     f.as<E>(), dh.as<const E>(), h.as<E>(), n),
              "an activation's gradient");
      }
    });
  });
}

void rope(Tensor qkv, const float* turns, int64_t time, int64_t heads, int64_t width, bool back,
          void* stream) {
  const int64_t both = 2 * heads * width;
  const float direction = back ? -1.0f : 1.0f;
  const auto go = [&]<class E, int V>(E) {
    check(launch(rope_kernel<E, V>, rows_by(qkv.rows, both / V), dim3(kRowThreads), stream,
                 qkv.as<E>(), turns, static_cast<int>(time), static_cast<int>(both),
                 static_cast<int>(width), direction),
          "turning by positions");
  };
  with_element(qkv.type, [&]<class E>(E e) {
    if (width % 8 == 0 && both / 2 * 3 % 8 == 0) {
      go.template operator()<E, 8>(e);
    } else {
      go.template operator()<E, 2>(e);
    }
  });
}

void column_sums(Tensor x, Tensor sums, bool add, void* stream) {
  const dim3 grid(static_cast<unsigned>((x.columns + kWarp - 1) / kWarp));
  with_element(x.type, [&]<class X>(X) {
    with_element(sums.type, [&]<class S>(S) {
      check(launch(column_sums_kernel<X, S>, grid, dim3(kSumThreads), stream, x.as<const X>(),
                   sums.as<S>(), x.rows, x.columns, add),
            "sums of columns");
    });
  });
}

}  // namespace gallop::gpt::cuda
