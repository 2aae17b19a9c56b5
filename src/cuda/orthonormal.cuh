// SPDX-License-Identifier: MIT
// Orthonormal rows by Householder reflections, in panels of rows: H = I - tau v v^T with v = 1 on
// the diagonal; a panel's reflections together are I - V^T S V with a triangle S.
#pragma once

#include "cuda/norm_data.h"
#include "cuda/team.cuh"

namespace gallop::cuda {
namespace {

inline constexpr int kPanel = kWarps;  // a warp for every row
__host__ __device__ inline Index panels(Index n) { return (n + kPanel - 1) / kPanel; }

__device__ inline double warp_total(double x) {
#pragma unroll
  for (unsigned lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}

// Of columns [first, n), by one warp; known to all its lanes.
template <class T>
__device__ double dot(const T* a, const T* b, Index first, Index n) {
  double sum = 0;
  for (Index c = first + threadIdx.x % 32; c < n; c += 32) {
    sum += static_cast<double>(a[c]) * static_cast<double>(b[c]);
  }
  return warp_total(sum);
}

// Rows [from, from + rows) of a become a triangle; v gets their reflections, s the panel's
// triangle. By one block.
template <class T>
__device__ void reflect_panel(Index n, Index from, int rows, T* a, T* v, T* s) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  __shared__ double tau, along[kPanel];
  for (int i = 0; i < rows; ++i) {
    const Index r = from + i;
    T *row = a + r * n, *mine = v + r * n;
    __syncthreads();
    if (warp == 0) {
      const double norm = ::sqrt(dot(row, row, r, n)), x = static_cast<double>(row[r]);
      const double end = x > 0 ? -norm : norm;
      if (lane == 0) tau = norm > 0 ? (end - x) / end : 0;
      const double by = norm > 0 ? 1 / (x - end) : 0;
      for (Index c = lane; c < n; c += 32) {
        mine[c] = c < r ? T(0) : c == r ? T(1) : static_cast<T>(static_cast<double>(row[c]) * by);
      }
    }
    __syncthreads();
    if (warp < rows && warp != i) {
      T* other = (warp > i ? a : v) + (from + warp) * n;
      const double d = dot(other, mine, r, n);
      if (warp < i) {
        if (lane == 0) along[warp] = d;
      } else {
        const T by = static_cast<T>(-tau * d);
        for (Index c = r + lane; c < n; c += 32) other[c] = gallop::fma(by, mine[c], other[c]);
      }
    }
    __syncthreads();
    if (static_cast<int>(threadIdx.x) <= i) {
      const int k = static_cast<int>(threadIdx.x);
      double sum = 0;
      for (int j = k; j < i; ++j) sum += static_cast<double>(s[k * kPanel + j]) * along[j];
      s[k * kPanel + i] = static_cast<T>(k == i ? tau : -tau * sum);
    }
  }
}

// A row x becomes x (I - V^T S V), or its inverse's; by one warp. A column is always the same
// lane's, so that a warp can go from panel to panel.
template <class T>
__device__ void reflect_row(Index n, Index from, int rows, const T* v, const T* s, bool inverse,
                            T* x) {
  T along[kPanel] = {}, by[kPanel] = {};
  const Index first = from + (threadIdx.x - static_cast<unsigned>(from)) % 32;
  for (Index c = first; c < n; c += 32) {
    const T value = x[c];
#pragma unroll
    for (int i = 0; i < kPanel; ++i) {
      if (i < rows) along[i] = gallop::fma(value, v[(from + i) * n + c], along[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kPanel; ++i) {
#pragma unroll
    for (unsigned lanes = 16; lanes > 0; lanes /= 2) {
      along[i] += __shfl_xor_sync(~0u, along[i], lanes);
    }
  }
#pragma unroll
  for (int i = 0; i < kPanel; ++i) {
#pragma unroll
    for (int k = 0; k < kPanel; ++k) {
      const bool in = i < rows && k < rows && (inverse ? k <= i : i <= k);
      if (in) by[k] = gallop::fma(along[i], s[inverse ? k * kPanel + i : i * kPanel + k], by[k]);
    }
  }
  for (Index c = first; c < n; c += 32) {
    T value = x[c];
#pragma unroll
    for (int k = 0; k < kPanel; ++k) {
      if (k < rows) value = gallop::fma(-by[k], v[(from + k) * n + c], value);
    }
    x[c] = value;
  }
}

// The rows of an n x n matrix become orthonormal, each row r in the span of rows 0 to r. v: n x n;
// s: panels(n) triangles.
template <class T>
__device__ void orthonormal_rows(Team& team, Index n, T* a, T* v, T* s) {
  const Index warps = team.stride() / 32, warp = team.first() / 32;
  const auto rows_of = [n](Index panel) {
    return static_cast<int>(n - panel * kPanel < kPanel ? n - panel * kPanel : kPanel);
  };
  for (Index p = 0; p < panels(n); ++p) {
    const Index from = p * kPanel;
    T* triangle = s + p * kPanel * kPanel;
    if (team.part() == 0) reflect_panel(n, from, rows_of(p), a, v, triangle);
    team.meet();
    for (Index r = from + kPanel + warp; r < n; r += warps) {
      reflect_row(n, from, rows_of(p), v, triangle, false, a + r * n);
    }
    team.meet();
  }
  // Row r of the product of all reflections, from the last to the first.
  for (Index r = warp; r < n; r += warps) {
    T* x = a + r * n;
    for (Index c = threadIdx.x % 32; c < n; c += 32) x[c] = T(c == r);
    for (Index p = r / kPanel; p >= 0; --p) {
      reflect_row(n, p * kPanel, rows_of(p), v, s + p * kPanel * kPanel, true, x);
    }
  }
}

}  // namespace
}  // namespace gallop::cuda
