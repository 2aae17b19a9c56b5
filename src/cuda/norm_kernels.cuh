// SPDX-License-Identifier: MIT
// The kernels of one rule with norms: its passes, tile by tile.
#pragma once

#include "cuda/norm_tile.cuh"

namespace gallop::cuda {
namespace {

__device__ __forceinline__ double warp_sum(double x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    x += __shfl_down_sync(~0u, x, distance);
  }
  return x;
}

template <class R, int P, bool Matrix, unsigned Present, Path A>
__device__ __forceinline__ void update_tile(
    const Step& s, const NormTensor& n, const Chunk& chunk,
    Job<R, typename TileWorker<R, P, Matrix, Present, A>::T>& job, void* grad) {
  using Worker = TileWorker<R, P, Matrix, Present, A>;
  const Tensor& t = s.tensors[chunk.tensor];
  const Bits64 key =
      combine(combine(s.control->seed, t.id), static_cast<Bits64>(s.progress[chunk.tensor].steps));
  const Bits32 dither = dither_of(s.control->seed, t.id, s.progress[chunk.tensor].steps);
  Worker w{t, n, job, grad, key, s.zero_grad, dither, *s.control, {}, {}, {}, {}};
#pragma unroll
  for (int v = 0; v < R::values.tensor; ++v) {
    w.x.tensor[v] = static_cast<typename Worker::T>(n.tensor_values[v]);
  }
  const unsigned column_tile = chunk.index % n.column_tiles;
  const unsigned row_tile = chunk.index / n.column_tiles % n.row_tiles;
  const Index matrix = chunk.index / n.column_tiles / n.row_tiles;
  const Index from = static_cast<Index>(column_tile) * kTileColumns;
  const Index first_row = static_cast<Index>(row_tile) * n.tile_rows;
  const Index last_row = first_row + n.tile_rows < n.rows ? first_row + n.tile_rows : n.rows;
  const bool aligned =
      t.aligned && reinterpret_cast<Bits64>(grad) % 16 == 0 && n.columns % (2 * kVector) == 0;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const bool leads = threadIdx.x % 32 == 0;
  const auto finish = [&](Index row) {
#pragma unroll
    for (int q = 0; q < Worker::kM; ++q) {
      if ((Worker::kOfRows >> q & 1) == 0) continue;
      const double sum = warp_sum(w.row_sums[q]);
      if (leads) n.row_partials[q][row * n.column_tiles + column_tile] = sum;
    }
  };
  const Index above = matrix * n.rows;
  Index r = first_row + warp;
  if constexpr (Worker::kRowsAtOnce > 1) {
    constexpr Index kAhead = (Worker::kRowsAtOnce - 1) * kWarps;
    const bool whole = aligned && from + kTileColumns <= n.columns;
    while (whole && r + kAhead < last_row && (above + r + kAhead + 1) * n.columns <= t.n) {
      w.update_whole_rows(above + r, kWarps, from, finish);
      r += kAhead + kWarps;
    }
  }
  for (; r < last_row; r += kWarps) {
    const Index row = above + r, rest = t.n - row * n.columns - from;
    Index length = n.columns - from < kTileColumns ? n.columns - from : kTileColumns;
    if (rest < length) length = rest;  // a vector's last row
    if constexpr (A == Path::quantised) {
      if (length > 0) w.update_code_row(row, from, static_cast<int>(length), aligned);
    } else {
      if (length > 0) w.update_row(row, from, static_cast<int>(length), aligned);
    }
    finish(row);
  }
  if constexpr (Worker::kOfTensor != 0) {
    __shared__ double sums[kWarps];
#pragma unroll
    for (int q = 0; q < Worker::kM; ++q) {
      if ((Worker::kOfTensor >> q & 1) == 0) continue;
      const double sum = warp_sum(w.tile_sums[q]);
      __syncthreads();
      if (leads) sums[warp] = sum;
      __syncthreads();
      if (threadIdx.x != 0) continue;
      double total = 0;
      for (int i = 0; i < kWarps; ++i) total += sums[i];
      n.tile_sums[static_cast<Index>(chunk.index) * detail::kMaxSums + q] = total;
    }
  }
  if constexpr (Worker::kOfColumns != 0) {
    // Half of the warps hand theirs to the other half, and so on.
    __shared__ double handed[kWarps / 2][kSlots * kVector][32];
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int q = 0; q < Worker::kM; ++q) {
      if ((Worker::kOfColumns >> q & 1) == 0) continue;
      for (int half = kWarps / 2; half > 0; half /= 2) {
        __syncthreads();
        if (warp >= half && warp < 2 * half) {
#pragma unroll
          for (int i = 0; i < kSlots * kVector; ++i) {
            handed[warp - half][i][lane] = w.column_sums[q][i / kVector][i % kVector];
          }
        }
        __syncthreads();
        if (warp < half) {
#pragma unroll
          for (int i = 0; i < kSlots * kVector; ++i) {
            w.column_sums[q][i / kVector][i % kVector] += handed[warp][i][lane];
          }
        }
      }
      if (warp != 0) continue;
      double* to = n.column_partials[q] + (matrix * n.row_tiles + row_tile) * n.columns;
#pragma unroll
      for (int i = 0; i < kSlots * kVector; ++i) {
        const Index c = from + (i / kVector * 32 + lane) * kVector + i % kVector;
        if (c < n.columns) to[c] = w.column_sums[q][i / kVector][i % kVector];
      }
    }
  }
}

template <class R, int P>
inline constexpr bool kDecided = R::passes[P].if_set >= 0 || R::passes[P].if_zero >= 0;

template <class R, int P>
__device__ __forceinline__ bool is_wanted_by(const NormTensor& n) {
  constexpr Pass kPass = R::passes[P];
  return is_wanted(kPass, [&](int i) { return n.tensor_values[i]; });
}

template <class R, int P, unsigned Variant, Path A>
__global__ void __launch_bounds__(kTileThreads, A == Path::f64         ? 2
                                                : A == Path::quantised ? 3
                                                                       : 4)
    norm_pass(const __grid_constant__ NormStep ns) {
  using T = detail::Choose<A == Path::f64, double, float>;
  constexpr unsigned kOfMatrix = detail::states_of_form<R>(Variant, true),
                     kOfVector = detail::states_of_form<R>(Variant, false);
  const Step& s = ns.step;
  __shared__ Job<R, T> job;
  const bool skipped = is_skipped(s);
  const bool idle = skipped || (kDecided<R, P> && ns.wanted[P] == 0);
  if (threadIdx.x == 0) job.group = ~0u;
  unsigned group = ~0u;
  long long steps = -1;
  __shared__ unsigned next[2];
  const unsigned dealt = s.first_chunk + gridDim.x;
  unsigned turn = 0, c = s.first_chunk + blockIdx.x;
  while (c < s.last_chunk && !idle) {
    if (threadIdx.x == 0) {
      next[turn] = dealt < s.last_chunk ? dealt + atomicAdd(&s.control->taken, 1u) : dealt;
    }
    const Chunk chunk = s.chunks[ns.backward ? s.first_chunk + s.last_chunk - 1 - c : c];
    void* grad = s.grads[chunk.tensor];
    if (grad != nullptr && is_wanted_by<R, P>(ns.norms[chunk.tensor])) {
      const unsigned its_group = s.tensors[chunk.tensor].group;
      const long long own = s.progress[chunk.tensor].steps;
      if (kHasScalars<R> || its_group != group || own != steps) {
        group = its_group;
        steps = own;
        __syncthreads();
        if (threadIdx.x == 0) prepare<R, 0>(s, chunk.tensor, job);
        __syncthreads();
      }
      const NormTensor& n = ns.norms[chunk.tensor];
      if (n.view.matrix) {
        if constexpr (detail::has_pass<R>(P, true, kOfMatrix)) {
          update_tile<R, P, true, kOfMatrix, A>(s, n, chunk, job, grad);
        }
      } else {
        if constexpr (detail::has_pass<R>(P, false, kOfVector)) {
          update_tile<R, P, false, kOfVector, A>(s, n, chunk, job, grad);
        }
      }
    }
    __syncthreads();
    c = next[turn];
    turn ^= 1;
  }
  if (!last_block(*s.control)) return;
  if (s.finish) {
    for (unsigned i = threadIdx.x; i < ns.marks; i += kTileThreads) ns.wanted[i] = 0;
  }
  if (!skipped) {
    advance<R>(s);
  } else if (s.finish && threadIdx.x == 0) {
    ++s.control->skipped;
  }
}

}  // namespace
}  // namespace gallop::cuda
