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
// On a multiprocessor at a time, by the rows they own: what registers are shared out among.
constexpr int blocks_of(int own) { return own == 32 ? 3 : 2; }

struct Flash {
  const float *qkv, *out, *dout;
  float *to, *dqkv, *stats, *delta;
  int heads, time, width;
  float scale;
};

// A block owns `Own` rows of a head and goes through the others `Seen` at a time, in tiles with
// room for W columns in shared memory, which is read in fours: from row to row four banks on. A
// thread has rows down + kDown i of what tiles make, and of a square (own x seen) columns across +
// kAcross j, of other tiles kWide columns in packs. In which order a row is summed does not depend
// on `Own`.
template <int Own, int Seen, int W>
struct Tile {
  static constexpr int kStride = W + 4, kSquareStride = Seen + 4, kRows = Own / kDown,
                       kColumns = Seen / kAcross, kWide = W / kAcross,
                       kPack = kWide < 4 ? kWide : 4;
  static constexpr int kOwn = Own * kStride, kSeen = Seen * kStride, kSquare = Own * kSquareStride;
  using Square = float[kRows][kColumns];
  using Sums = float[kRows][kWide];

  static __device__ __forceinline__ int across() { return static_cast<int>(threadIdx.x) % kAcross; }
  static __device__ __forceinline__ int down() { return static_cast<int>(threadIdx.x) / kAcross; }
  static __device__ __forceinline__ int column(int pack) {
    return (across() + kAcross * pack) * kPack;
  }

  // Rows `first` and on of a head; what is not there is zero.
  template <int Rows>
  static __device__ __forceinline__ void load(float* to, const float* from, int64_t stride,
                                              int first, const Flash& f) {
    if (f.width % 4 == 0) {
      for (int i = static_cast<int>(threadIdx.x); i < Rows * W / 4; i += kThreads) {
        const int row = i / (W / 4), c = i % (W / 4) * 4;
        float x[4] = {};
        if (first + row < f.time && c < f.width) read<4>(from + (first + row) * stride + c, x);
        write<4>(x, to + row * kStride + c);
      }
      return;
    }
    for (int i = static_cast<int>(threadIdx.x); i < Rows * W; i += kThreads) {
      const int row = i / W, c = i % W;
      const bool there = first + row < f.time && c < f.width;
      to[row * kStride + c] = there ? from[(first + row) * stride + c] : 0.0f;
    }
  }

  // out = own seen^T
  static __device__ __forceinline__ void product(const float* a, const float* b, Square& out) {
#pragma unroll
    for (auto& row : out) {
#pragma unroll
      for (float& x : row) x = 0;
    }
    a += down() * kStride;
    b += across() * kStride;
#pragma unroll 2
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

  static __device__ __forceinline__ void put(const Square& from, float* to) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        to[(down() + kDown * i) * kSquareStride + across() + kAcross * j] = from[i][j];
      }
    }
    __syncwarp();  // who shares rows is in one warp
  }

  // sum += square seen
  static __device__ __forceinline__ void add_product(const float* p, const float* x, Sums& sum) {
    p += down() * kSquareStride;
#pragma unroll 2
    for (int k = 0; k < Seen; k += 4) {
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

  static __device__ __forceinline__ void store(const Sums& from, float* to, int64_t stride,
                                               int first, const Flash& f) {
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

template <int Own, int Seen, int W>
__global__ void __launch_bounds__(kThreads, blocks_of(Own)) forward_kernel(Flash f) {
  using T = Tile<Own, Seen, W>;
  float* const q = shared_room();
  float* const k = q + T::kOwn;
  float* const v = k + T::kSeen;
  float* const p = v + T::kSeen;
  const int64_t all = static_cast<int64_t>(f.heads) * f.width, stride = 3 * all;
  const float* head = f.qkv + head_of(f, 3);
  // The longest first: its block takes the longest.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Own;
  T::template load<Own>(q, head, stride, first, f);
  float sum[T::kRows] = {}, most[T::kRows];
  typename T::Sums o = {};
  for (float& m : most) m = -INFINITY;
  for (int begin = 0; begin < first + Own && begin < f.time; begin += Seen) {
    T::template load<Seen>(k, head + all, stride, begin, f);
    T::template load<Seen>(v, head + 2 * all, stride, begin, f);
    __syncthreads();
    typename T::Square s;
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
    T::put(s, p);
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

// A probability again, from a product of a query and a key, and the gradient of that product from
// the one of the output's gradient and a value.
__device__ __forceinline__ void score_again(const Flash& f, int query, int key, float lse,
                                            float delta, float& p, float& ds) {
  p = key <= query && query < f.time ? expf(p * f.scale - lse) : 0.0f;
  ds = p * (ds - delta) * f.scale;
}

__device__ __forceinline__ float of_query(const float* values, const Flash& f, int query) {
  return query < f.time ? values[static_cast<int64_t>(blockIdx.y) * f.time + query] : 0.0f;
}

template <int Own, int Seen, int W>
__global__ void __launch_bounds__(kThreads, blocks_of(Own)) keys_backward_kernel(Flash f) {
  using T = Tile<Own, Seen, W>;
  float* const k = shared_room();
  float* const v = k + T::kOwn;
  float* const q = v + T::kOwn;
  float* const go = q + T::kSeen;
  float* const square = go + T::kSeen;
  const int64_t all = static_cast<int64_t>(f.heads) * f.width, stride = 3 * all;
  const float* head = f.qkv + head_of(f, 3);
  const int begin = static_cast<int>(blockIdx.x) * Own;
  T::template load<Own>(k, head + all, stride, begin, f);
  T::template load<Own>(v, head + 2 * all, stride, begin, f);
  typename T::Sums dk = {}, dv = {};
  for (int first = begin / Seen * Seen; first < f.time; first += Seen) {
    T::template load<Seen>(q, head, stride, first, f);
    T::template load<Seen>(go, f.dout + head_of(f, 1), all, first, f);
    __syncthreads();
    typename T::Square p, ds;
    T::product(k, q, p);
    T::product(v, go, ds);
#pragma unroll
    for (int j = 0; j < T::kColumns; ++j) {
      const int query = first + T::across() + kAcross * j;
      const float lse = of_query(f.stats, f, query), delta = of_query(f.delta, f, query);
#pragma unroll
      for (int i = 0; i < T::kRows; ++i) {
        score_again(f, query, begin + T::down() + kDown * i, lse, delta, p[i][j], ds[i][j]);
      }
    }
    T::put(p, square);
    T::add_product(square, go, dv);
    __syncwarp();
    T::put(ds, square);
    T::add_product(square, q, dk);
    __syncthreads();
  }
  T::store(dk, f.dqkv + head_of(f, 3) + all, stride, begin, f);
  T::store(dv, f.dqkv + head_of(f, 3) + 2 * all, stride, begin, f);
}

template <int Own, int Seen, int W>
__global__ void __launch_bounds__(kThreads, blocks_of(Own)) queries_backward_kernel(Flash f) {
  using T = Tile<Own, Seen, W>;
  float* const q = shared_room();
  float* const go = q + T::kOwn;
  float* const k = go + T::kOwn;
  float* const v = k + T::kSeen;
  float* const square = v + T::kSeen;
  const int64_t all = static_cast<int64_t>(f.heads) * f.width, stride = 3 * all;
  const float* head = f.qkv + head_of(f, 3);
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Own;
  T::template load<Own>(q, head, stride, first, f);
  T::template load<Own>(go, f.dout + head_of(f, 1), all, first, f);
  float lse[T::kRows], delta[T::kRows];
#pragma unroll
  for (int i = 0; i < T::kRows; ++i) {
    const int query = first + T::down() + kDown * i;
    lse[i] = of_query(f.stats, f, query), delta[i] = of_query(f.delta, f, query);
  }
  typename T::Sums dq = {};
  for (int begin = 0; begin < first + Own && begin < f.time; begin += Seen) {
    T::template load<Seen>(k, head + all, stride, begin, f);
    T::template load<Seen>(v, head + 2 * all, stride, begin, f);
    __syncthreads();
    typename T::Square p, ds;
    T::product(q, k, p);
    T::product(go, v, ds);
#pragma unroll
    for (int i = 0; i < T::kRows; ++i) {
#pragma unroll
      for (int j = 0; j < T::kColumns; ++j) {
        score_again(f, first + T::down() + kDown * i, begin + T::across() + kAcross * j, lse[i],
                    delta[i], p[i][j], ds[i][j]);
      }
    }
    T::put(ds, square);
    T::add_product(square, k, dq);
    __syncthreads();
  }
  T::store(dq, f.dqkv + head_of(f, 3), stride, first, f);
}

// All tiles of backward must fit in the 99 KB that every GPU has. Fewer rows to own where that
// leaves multiprocessors without work.
template <class F>
void with_tile(const AttentionShape& s, F f) {
  constexpr int64_t kEnoughBlocks = 512;
  const bool few = (s.time + 63) / 64 * s.batch * s.heads < kEnoughBlocks;
  if (s.width <= 32) {
    return few ? f.template operator()<32, 64, 32>() : f.template operator()<64, 64, 32>();
  }
  if (s.width <= 64) {
    return few ? f.template operator()<32, 64, 64>() : f.template operator()<64, 64, 64>();
  }
  return f.template operator()<32, 32, kWidest>();
}

// For tiles of rows that are owned and seen, and a square.
template <int Own, int Seen, int W>
constexpr size_t room_for(int own, int seen) {
  using T = Tile<Own, Seen, W>;
  return sizeof(float) * static_cast<size_t>(own * T::kOwn + seen * T::kSeen + T::kSquare);
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
  with_tile(s, [&]<int Own, int Seen, int W>() {
    check(launch_with(room_for<Own, Seen, W>(1, 2), forward_kernel<Own, Seen, W>, grid_of(s, Own),
                      dim3(kThreads), stream, f),
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
  with_tile(s, [&]<int Own, int Seen, int W>() {
    constexpr size_t kRoom = room_for<Own, Seen, W>(2, 2);
    check(launch_with(kRoom, keys_backward_kernel<Own, Seen, W>, grid_of(s, Own), dim3(kThreads),
                      stream, f),
          "attention's gradient");
    check(launch_with(kRoom, queries_backward_kernel<Own, Seen, W>, grid_of(s, Own), dim3(kThreads),
                      stream, f),
          "attention's gradient");
  });
}

}  // namespace gallop::gpt::cuda
