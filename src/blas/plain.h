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

// Jacobi's method: rotations that make one pair of elements after the other zero. In double, where
// rounding stays far below what T can tell apart.
template <class T>
bool eigenvectors(Index n, T* out) {
  constexpr int kSweeps = 60;
  constexpr double kEnough = sizeof(T) == 8 ? 1e-13 : 1e-9;
  std::vector<double> square(out, out + n * n), vectors(static_cast<size_t>(n * n), 0);
  double *a = square.data(), *v = vectors.data();
  for (Index i = 0; i < n; ++i) v[i * n + i] = 1;
  const double total = std::inner_product(a, a + n * n, a, 0.0);
  const auto off_diagonal = [&] {
    double sum = 0;
    for (Index i = 0; i < n; ++i)
      sum += std::inner_product(a + i * n, a + i * n + i, a + i * n, 0.0);
    return sum;
  };
  const auto turn = [](double& x, double& y, double c, double s) {
    const double before = x;
    x = c * before - s * y;
    y = s * before + c * y;
  };
  int sweep = 0;
  for (; sweep < kSweeps && off_diagonal() > kEnough * kEnough * total; ++sweep) {
    for (Index p = 0; p < n; ++p) {
      for (Index q = p + 1; q < n; ++q) {
        if (a[p * n + q] == 0) continue;
        const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
        const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (Index i = 0; i < n; ++i) turn(a[i * n + p], a[i * n + q], c, s);
        for (Index i = 0; i < n; ++i) turn(a[p * n + i], a[q * n + i], c, s);
        for (Index i = 0; i < n; ++i) turn(v[p * n + i], v[q * n + i], c, s);
      }
    }
  }
  std::vector<Index> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](Index x, Index y) { return a[x * n + x] > a[y * n + y]; });
  for (Index i = 0; i < n; ++i) {
    const double* row = v + order[static_cast<size_t>(i)] * n;
    std::transform(row, row + n, out + i * n, [](double x) { return static_cast<T>(x); });
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
