// SPDX-License-Identifier: MIT
// Dense matrices in row-major order, on the calling thread: by OpenBLAS if it is on this machine,
// else by plain loops.
#pragma once

#include <string>

namespace gallop::blas {

using Index = long long;

// op(M) is M, or its transpose.
template <class T>
struct Factor {
  const T* data;
  Index stride;  // elements from row to row
  bool transposed = false;
};

// C = alpha op(A) op(B) + beta C, where C is m x n and the products have k terms.
void gemm(Index m, Index n, Index k, float alpha, Factor<float> a, Factor<float> b, float beta,
          float* c, Index stride);
void gemm(Index m, Index n, Index k, double alpha, Factor<double> a, Factor<double> b, double beta,
          double* c, Index stride);

// A symmetric n x n matrix becomes its eigenvectors, one a row, those of the largest eigenvalues
// first. False: it did not converge.
bool eigenvectors(Index n, float* a);
bool eigenvectors(Index n, double* a);

// The same, or the unit matrix where that fails: only numbers that are not finite lead there.
template <class T>
void eigenbasis(Index n, T* a) {
  if (eigenvectors(n, a)) return;
  for (Index i = 0; i < n * n; ++i) a[i] = i % (n + 1) == 0;
}

// The rows of an n x n matrix become orthonormal, each row r in the span of rows 0 to r.
constexpr Index orthonormal_work(Index n) { return 65 * n; }  // elements
void orthonormal_rows(Index n, float* a, float* work);
void orthonormal_rows(Index n, double* a, double* work);

// While one lives, the library uses no threads of its own: gallop's call it side by side. Whoever
// calls the above holds one.
class OneThreadEach {
 public:
  OneThreadEach();
  ~OneThreadEach();
  OneThreadEach(const OneThreadEach&) = delete;
  OneThreadEach& operator=(const OneThreadEach&) = delete;
};

// "OpenBLAS 0.3.21, SkylakeX", or what is used instead.
std::string describe();

}  // namespace gallop::blas
