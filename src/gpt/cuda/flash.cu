// SPDX-License-Identifier: MIT
// Causal attention in fp32 that never writes scores to memory: a block takes some queries, or some
// keys, of one head and goes through the others, tile by tile.
#include <math.h>

#include "cuda/runtime.h"
#include "gpt/cuda/element.cuh"
#include "gpt/cuda/kernels.h"
#include "gpt/cuda/room.cuh"

namespace gallop::gpt::cuda {
namespace {

using gallop::cuda::check;

constexpr int kThreads = 256, kAcross = 16, kDown = kThreads / kAcross;
constexpr int kWidest = 128;

struct Flash {
  const float *qkv, *out, *dout;
  float *to, *dqkv, *stats, *delta;
  int heads, time, width;
  float scale;
};

// Tiles of B rows with room for W columns in shared memory, which is read in fours: from row to row
// four banks on. A thread has rows down + kDown i of what tiles make, and of a square columns
// across
// + kAcross j, of other tiles kWide columns in packs.
template <int B, int W>
struct Tile {
  static constexpr int kStride = W + 4, kSquareStride = B + 4, kRows = B / kDown,
                       kColumns = B / kAcross, kWide = W / kAcross, kPack = kWide < 4 ? kWide : 4;
  static constexpr int kElements = B * kStride, kSquareElements = B * kSquareStride;

  static __device__ __forceinline__ int across() { return static_cast<int>(threadIdx.x) % kAcross; }
  static __device__ __forceinline__ int down() { return static_cast<int>(threadIdx.x) / kAcross; }
  static __device__ __forceinline__ int column(int pack) {
    return (across() + kAcross * pack) * kPack;
  }

  // Rows `first` and on of a head; what is not there is zero.
  static __device__ __forceinline__ void load(float* to, const float* from, int64_t stride,
                                              int first, const Flash& f) {
    if (f.width % 4 == 0) {
      for (int i = static_cast<int>(threadIdx.x); i < B * W / 4; i += kThreads) {
        const int row = i / (W / 4), c = i % (W / 4) * 4;
        float x[4] = {};
        if (first + row < f.time && c < f.width) read<4>(from + (first + row) * stride + c, x);
        write<4>(x, to + row * kStride + c);
      }
      return;
    }
    for (int i = static_cast<int>(threadIdx.x); i < B * W; i += kThreads) {
      const int row = i / W, c = i % W;
      const bool there = first + row < f.time && c < f.width;
      to[row * kStride + c] = there ? from[(first + row) * stride + c] : 0.0f;
    }
  }

  // out = a b^T
  static __device__ __forceinline__ void product(const float* a, const float* b,
                                                 float (&out)[kRows][kColumns]) {
#pragma unroll
    for (auto& row : out) {
#pragma unroll
      for (float& x : row) x = 0;
    }
    a += down() * kStride;
    b += across() * kStride;
#pragma unroll 4
    for (int k = 0; k < W; k += 4) {
      float left[kRows][4], right[kColumns][4];
#pragma unroll
      for (int i = 0; i < kRows; ++i) read<4>(a + kDown * kStride * i + k, left[i]);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) read<4>(b + kAcross * kStride * j + k, right[j]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
#pragma unroll
          for (int j = 0; j < kColumns; ++j) {
            out[i][j] = gallop::fma(left[i][e], right[j][e], out[i][j]);
          }
        }
      }
    }
  }

  static __device__ __forceinline__ void put_square(const float (&from)[kRows][kColumns], float* to,
                                                    bool transposed) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const int row = down() + kDown * i, c = across() + kAcross * j;
        to[transposed ? c * kSquareStride + row : row * kSquareStride + c] = from[i][j];
      }
    }
  }

  // sum += p x
  static __device__ __forceinline__ void add_product(const float* p, const float* x,
                                                     float (&sum)[kRows][kWide]) {
    p += down() * kSquareStride;
#pragma unroll 2
    for (int k = 0; k < B; k += 4) {
      float left[kRows][4];
#pragma unroll
      for (int i = 0; i < kRows; ++i) read<4>(p + kDown * kSquareStride * i + k, left[i]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int pack = 0; pack < kWide / kPack; ++pack) {
          float right[kPack];
          read<kPack>(x + (k + e) * kStride + column(pack), right);
#pragma unroll
          for (int i = 0; i < kRows; ++i) {
#pragma unroll
            for (int j = 0; j < kPack; ++j) {
              float& to = sum[i][pack * kPack + j];
              to = gallop::fma(left[i][e], right[j], to);
            }
          }
        }
      }
    }
  }

  static __device__ __forceinline__ void store(const float (&from)[kRows][kWide], float* to,
                                               int64_t stride, int first, const Flash& f) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first + down() + kDown * i;
      if (row >= f.time) continue;
#pragma unroll
      for (int pack = 0; pack < kWide / kPack; ++pack) {
        float x[kPack];
#pragma unroll
        for (int j = 0; j < kPack; ++j) x[j] = from[i][pack * kPack + j];
        float* at = to + row * stride + column(pack);
        if (f.width % 4 == 0) {
          if (column(pack) < f.width) write<kPack>(x, at);
          continue;
        }
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          if (column(pack) + j < f.width) at[j] = x[j];
        }
      }
    }
  }
};

// Over the threads that share a row.
__device__ __forceinline__ float row_sum(float x) {
  for (int lanes = kAcross / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}
__device__ __forceinline__ float row_max(float x) {
  for (int lanes = kAcross / 2; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(~0u, x, lanes);
    x = other > x ? other : x;
  }
  return x;
}

// Where the block's head begins in [batch x time, parts x heads x width].
__device__ __forceinline__ int64_t head_of(const Flash& f, int parts) {
  const int64_t sequence = static_cast<int64_t>(blockIdx.y) / f.heads,
                head = static_cast<int64_t>(blockIdx.y) % f.heads;
  return sequence * f.time * parts * f.heads * f.width + head * f.width;
}

template <int B, int W>
__global__ void __launch_bounds__(kThreads) forward_kernel(Flash f) {
  using T = Tile<B, W>;
  float* const q = shared_room();
  float* const k = q + T::kElements;
  float* const v = k + T::kElements;
  float* const p = v + T::kElements;
  const int64_t all = static_cast<int64_t>(f.heads) * f.width, stride = 3 * all;
  const float* head = f.qkv + head_of(f, 3);
  // The longest first: its block takes the longest.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * B;
  T::load(q, head, stride, first, f);
  float sum[T::kRows] = {}, most[T::kRows], o[T::kRows][T::kWide] = {};
  for (float& m : most) m = -INFINITY;
  for (int begin = 0; begin <= first; begin += B) {
    T::load(k, head + all, stride, begin, f);
    T::load(v, head + 2 * all, stride, begin, f);
    __syncthreads();
    float s[T::kRows][T::kColumns];
    T::product(q, k, s);
#pragma unroll
    for (int i = 0; i < T::kRows; ++i) {
      const int row = first + T::down() + kDown * i;
      float here = most[i];
#pragma unroll
      for (int j = 0; j < T::kColumns; ++j) {
        const int key = begin + T::across() + kAcross * j;
        s[i][j] = key <= row ? s[i][j] * f.scale : -INFINITY;
        here = s[i][j] > here ? s[i][j] : here;
      }
      here = row_max(here);  // every row sees its first key in the first tile
      const float by = expf(most[i] - here);
      float part = 0;
#pragma unroll
      for (int j = 0; j < T::kColumns; ++j) {
        s[i][j] = expf(s[i][j] - here);
        part += s[i][j];
      }
      sum[i] = sum[i] * by + row_sum(part);
      most[i] = here;
#pragma unroll
      for (int j = 0; j < T::kWide; ++j) o[i][j] *= by;
    }
    T::put_square(s, p, false);
    __syncwarp();  // what shares rows is in one warp
    T::add_product(p, v, o);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < T::kRows; ++i) {
    const int row = first + T::down() + kDown * i;
    const float by = 1.0f / sum[i];
#pragma unroll
    for (int j = 0; j < T::kWide; ++j) o[i][j] *= by;
    if (row < f.time && T::across() == 0) {
      f.stats[static_cast<int64_t>(blockIdx.y) * f.time + row] = most[i] + logf(sum[i]);
    }
  }
  T::store(o, f.to + head_of(f, 1), all, first, f);
}

// delta: the sum of out x dout in each row; a warp takes a row.
__global__ void __launch_bounds__(kThreads) delta_kernel(Flash f) {
  const int row =
      static_cast<int>(blockIdx.x) * (kThreads / kWarp) + static_cast<int>(threadIdx.x) / kWarp;
  const int64_t all = static_cast<int64_t>(f.heads) * f.width,
                at = head_of(f, 1) + (row < f.time ? row : 0) * all;
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x) % kWarp; c < f.width; c += kWarp) {
    sum += f.out[at + c] * f.dout[at + c];
  }
  sum = warp_sum(sum);
  if (row < f.time && threadIdx.x % kWarp == 0) {
    f.delta[static_cast<int64_t>(blockIdx.y) * f.time + row] = sum;
  }
}

// Probabilities of a tile again, and the gradient of its scores.
template <int B, int W>
__device__ __forceinline__ void scores_again(const Flash& f, const float* q, const float* k,
                                             const float* v, const float* go, int first, int begin,
                                             float (&p)[Tile<B, W>::kRows][Tile<B, W>::kColumns],
                                             float (&ds)[Tile<B, W>::kRows][Tile<B, W>::kColumns]) {
  using T = Tile<B, W>;
  T::product(q, k, p);
  T::product(go, v, ds);
#pragma unroll
  for (int i = 0; i < T::kRows; ++i) {
    const int row = first + T::down() + kDown * i;
    const int64_t at = static_cast<int64_t>(blockIdx.y) * f.time + row;
    const float lse = row < f.time ? f.stats[at] : 0.0f, delta = row < f.time ? f.delta[at] : 0.0f;
#pragma unroll
    for (int j = 0; j < T::kColumns; ++j) {
      const int key = begin + T::across() + kAcross * j;
      p[i][j] = key <= row && row < f.time ? expf(p[i][j] * f.scale - lse) : 0.0f;
      ds[i][j] = p[i][j] * (ds[i][j] - delta) * f.scale;
    }
  }
}

template <int B, int W>
__global__ void __launch_bounds__(kThreads) keys_backward_kernel(Flash f) {
  using T = Tile<B, W>;
  float* const q = shared_room();
  float* const k = q + T::kElements;
  float* const v = k + T::kElements;
  float* const go = v + T::kElements;
  float* const square = go + T::kElements;
  const int64_t all = static_cast<int64_t>(f.heads) * f.width, stride = 3 * all;
  const float* head = f.qkv + head_of(f, 3);
  const int begin = static_cast<int>(blockIdx.x) * B;
  T::load(k, head + all, stride, begin, f);
  T::load(v, head + 2 * all, stride, begin, f);
  float dk[T::kRows][T::kWide] = {}, dv[T::kRows][T::kWide] = {};
  for (int first = begin; first < f.time; first += B) {
    T::load(q, head, stride, first, f);
    T::load(go, f.dout + head_of(f, 1), all, first, f);
    __syncthreads();
    float p[T::kRows][T::kColumns], ds[T::kRows][T::kColumns];
    scores_again<B, W>(f, q, k, v, go, first, begin, p, ds);
    T::put_square(p, square, true);
    __syncthreads();
    T::add_product(square, go, dv);
    __syncthreads();
    T::put_square(ds, square, true);
    __syncthreads();
    T::add_product(square, q, dk);
    __syncthreads();
  }
  T::store(dk, f.dqkv + head_of(f, 3) + all, stride, begin, f);
  T::store(dv, f.dqkv + head_of(f, 3) + 2 * all, stride, begin, f);
}

template <int B, int W>
__global__ void __launch_bounds__(kThreads) queries_backward_kernel(Flash f) {
  using T = Tile<B, W>;
  float* const q = shared_room();
  float* const k = q + T::kElements;
  float* const v = k + T::kElements;
  float* const go = v + T::kElements;
  float* const square = go + T::kElements;
  const int64_t all = static_cast<int64_t>(f.heads) * f.width, stride = 3 * all;
  const float* head = f.qkv + head_of(f, 3);
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * B;
  T::load(q, head, stride, first, f);
  T::load(go, f.dout + head_of(f, 1), all, first, f);
  float dq[T::kRows][T::kWide] = {};
  for (int begin = 0; begin <= first; begin += B) {
    T::load(k, head + all, stride, begin, f);
    T::load(v, head + 2 * all, stride, begin, f);
    __syncthreads();
    float p[T::kRows][T::kColumns], ds[T::kRows][T::kColumns];
    scores_again<B, W>(f, q, k, v, go, first, begin, p, ds);
    T::put_square(ds, square, false);
    __syncwarp();
    T::add_product(square, k, dq);
    __syncthreads();
  }
  T::store(dq, f.dqkv + head_of(f, 3), stride, first, f);
}

// Smaller tiles for wide heads: five must fit in the 99 KB that every GPU has.
template <class F>
void with_tile(int64_t width, F f) {
  if (width <= 32) return f.template operator()<64, 32>();
  if (width <= 64) return f.template operator()<64, 64>();
  return f.template operator()<32, kWidest>();
}

template <int B, int W>
constexpr size_t room_for(int tiles) {  // and a square
  using T = Tile<B, W>;
  return sizeof(float) * static_cast<size_t>(tiles * T::kElements + T::kSquareElements);
}

dim3 grid_of(const AttentionShape& s, int64_t rows) {
  return dim3(static_cast<unsigned>((s.time + rows - 1) / rows),
              static_cast<unsigned>(s.batch * s.heads));
}

Flash describe(const AttentionShape& s, Tensor qkv) {
  Flash f{};
  f.qkv = qkv.as<const float>();
  f.heads = static_cast<int>(s.heads);
  f.time = static_cast<int>(s.time);
  f.width = static_cast<int>(s.width);
  f.scale = 1.0f / gallop::sqrt(static_cast<float>(s.width));
  return f;
}

}  // namespace

bool flash_fits(const AttentionShape& s) { return s.width <= kWidest; }

void flash(const AttentionShape& s, Tensor qkv, Tensor out, float* stats, void* stream) {
  Flash f = describe(s, qkv);
  f.to = out.as<float>();
  f.stats = stats;
  with_tile(s.width, [&]<int B, int W>() {
    check(launch_with(room_for<B, W>(3), forward_kernel<B, W>, grid_of(s, B), dim3(kThreads),
                      stream, f),
          "attention");
  });
}

void flash_backward(const AttentionShape& s, Tensor qkv, Tensor out, const float* stats,
                    Tensor dout, Tensor dqkv, float* delta, void* stream) {
  Flash f = describe(s, qkv);
  f.out = out.as<const float>();
  f.dout = dout.as<const float>();
  f.stats = const_cast<float*>(stats);
  f.delta = delta;
  f.dqkv = dqkv.as<float>();
  check(launch(delta_kernel, grid_of(s, kThreads / kWarp), dim3(kThreads), stream, f),
        "attention's gradient");
  with_tile(s.width, [&]<int B, int W>() {
    check(launch_with(room_for<B, W>(4), keys_backward_kernel<B, W>, grid_of(s, B), dim3(kThreads),
                      stream, f),
          "attention's gradient");
    check(launch_with(room_for<B, W>(4), queries_backward_kernel<B, W>, grid_of(s, B),
                      dim3(kThreads), stream, f),
          "attention's gradient");
  });
}

}  // namespace gallop::gpt::cuda
