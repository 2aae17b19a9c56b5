// SPDX-License-Identifier: MIT
// Products of dense matrices in row-major order, on the calling thread.
#pragma once

namespace gallop::blas {

// op(M) is M, or its transpose.
template <class T>
struct Factor {
  const T* data;
  long long stride;  // elements from row to row
  bool transposed = false;
};

// C = alpha op(A) op(B) + beta C, where C is m x n and the products have k terms.
void gemm(long long m, long long n, long long k, float alpha, Factor<float> a, Factor<float> b,
          float beta, float* c, long long stride);
void gemm(long long m, long long n, long long k, double alpha, Factor<double> a, Factor<double> b,
          double beta, double* c, long long stride);

// While one lives, the library starts no threads of its own: gallop's call it side by side.
class OneThreadEach {
 public:
  OneThreadEach();
  ~OneThreadEach();
  OneThreadEach(const OneThreadEach&) = delete;
  OneThreadEach& operator=(const OneThreadEach&) = delete;
};

}  // namespace gallop::blas
