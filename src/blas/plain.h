// SPDX-License-Identifier: MIT
// What blas.h promises, by plain loops: without OpenBLAS, and as a reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "blas/blas.h"

namespace gallop::blas::plain {

template <class T>
void gemm(Index m, Index n, Index k, T alpha, Factor<T> a, Factor<T> b, T beta, T* c,
          Index stride) {
  const auto at = [](const Factor<T>& f, Index i, Index j) {
    return f.transposed ? f.data[j * f.stride + i] : f.data[i * f.stride + j];
  };
  for (Index i = 0; i < m; ++i) {
    T* row = c + i * stride;
    for (Index j = 0; j < n; ++j) row[j] = beta == 0 ? 0 : row[j] * beta;
    for (Index l = 0; l < k; ++l) {
      const T left = alpha * at(a, i, l);
      for (Index j = 0; j < n; ++j) row[j] += left * at(b, l, j);
    }
  }
}

// Jacobi's method: rotations that make one pair of elements after the other zero.
template <class T>
bool eigenvectors(Index n, T* a) {
  constexpr int kSweeps = 60;
  std::vector<T> v(static_cast<size_t>(n * n), 0);
  for (Index i = 0; i < n; ++i) v[static_cast<size_t>(i * n + i)] = 1;
  const auto off_diagonal = [&] {
    T sum = 0;
    for (Index i = 0; i < n; ++i) {
      for (Index j = 0; j < i; ++j) sum += a[i * n + j] * a[i * n + j];
    }
    return sum;
  };
  T total = 0;
  for (Index i = 0; i < n * n; ++i) total += a[i] * a[i];
  const T epsilon = sizeof(T) == 8 ? T(1e-15) : T(1e-7);
  int sweep = 0;
  for (; sweep < kSweeps && off_diagonal() > epsilon * epsilon * total; ++sweep) {
    for (Index p = 0; p < n; ++p) {
      for (Index q = p + 1; q < n; ++q) {
        if (a[p * n + q] == 0) continue;
        const T theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
        const T t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const T c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (Index i = 0; i < n; ++i) {
          const T x = a[i * n + p], y = a[i * n + q];
          a[i * n + p] = c * x - s * y;
          a[i * n + q] = s * x + c * y;
        }
        for (Index i = 0; i < n; ++i) {
          const T x = a[p * n + i], y = a[q * n + i];
          a[p * n + i] = c * x - s * y;
          a[q * n + i] = s * x + c * y;
          T &vp = v[static_cast<size_t>(p * n + i)], &vq = v[static_cast<size_t>(q * n + i)];
          const T vx = vp, vy = vq;
          vp = c * vx - s * vy;
          vq = s * vx + c * vy;
        }
      }
    }
  }
  std::vector<Index> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](Index x, Index y) { return a[x * n + x] > a[y * n + y]; });
  for (Index i = 0; i < n; ++i) {
    std::copy_n(v.data() + order[static_cast<size_t>(i)] * n, n, a + i * n);
  }
  return sweep < kSweeps;
}

// Gram and Schmidt, twice over for rows that nearly depend on earlier ones.
template <class T>
void orthonormal_rows(Index n, T* a) {
  for (Index r = 0; r < n; ++r) {
    T* row = a + r * n;
    for (int again = 0; again < 2; ++again) {
      for (Index q = 0; q < r; ++q) {
        const T dot = std::inner_product(row, row + n, a + q * n, T(0));
        for (Index i = 0; i < n; ++i) row[i] -= dot * a[q * n + i];
      }
      const T norm = std::sqrt(std::inner_product(row, row + n, row, T(0)));
      for (Index i = 0; i < n && norm > 0; ++i) row[i] /= norm;
    }
  }
}

}  // namespace gallop::blas::plain
