// SPDX-License-Identifier: MIT
// Products of matrices by the threads of a team, for kernels that decide on the device whether
// there is anything to multiply.
#pragma once

#include "cuda/team.cuh"

namespace gallop::cuda {
namespace {

// Row-major; op(M) is M or its transpose.
template <class T>
struct Factor {
  const T* data;
  Index stride;  // from row to row
  bool transposed;
  __device__ T at(Index r, Index c) const {
    return transposed ? data[c * stride + r] : data[r * stride + c];
  }
};

// C (m x n, compact) = op(A) op(B), k terms each. Whoever needs all of it meets first.
template <class T>
__device__ void multiply(Team& team, Index m, Index n, Index k, Factor<T> a, Factor<T> b, T* c) {
  constexpr int kTile = 64, kDepth = 16, kDown = 2, kAcross = 4;
  static_assert(kTile * kTile == kThreads * kDown * kAcross);
  __shared__ T of_a[kDepth][kTile + 1], of_b[kDepth][kTile + 1];
  const int across = static_cast<int>(threadIdx.x) % (kTile / kAcross) * kAcross;
  const int down = static_cast<int>(threadIdx.x) / (kTile / kAcross) * kDown;
  const Index tiles_across = (n + kTile - 1) / kTile,
              tiles = (m + kTile - 1) / kTile * tiles_across;
  for (Index tile = team.part(); tile < tiles; tile += team.parts()) {
    const Index row = tile / tiles_across * kTile, column = tile % tiles_across * kTile;
    T sum[kDown][kAcross] = {};
    for (Index from = 0; from < k; from += kDepth) {
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kThreads) {
        // Neighbours read neighbours in memory.
        const int ar = a.transposed ? i % kTile : i / kDepth,
                  ak = a.transposed ? i / kTile : i % kDepth;
        const int bc = b.transposed ? i / kDepth : i % kTile,
                  bk = b.transposed ? i % kDepth : i / kTile;
        of_a[ak][ar] = row + ar < m && from + ak < k ? a.at(row + ar, from + ak) : T(0);
        of_b[bk][bc] = column + bc < n && from + bk < k ? b.at(from + bk, column + bc) : T(0);
      }
      __syncthreads();
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
#pragma unroll
        for (int i = 0; i < kDown; ++i) {
#pragma unroll
          for (int j = 0; j < kAcross; ++j) {
            sum[i][j] = gallop::fma(of_a[d][down + i], of_b[d][across + j], sum[i][j]);
          }
        }
      }
    }
    for (int i = 0; i < kDown; ++i) {
      for (int j = 0; j < kAcross; ++j) {
        const Index r = row + down + i, q = column + across + j;
        if (r < m && q < n) c[r * n + q] = sum[i][j];
      }
    }
  }
}

}  // namespace
}  // namespace gallop::cuda
