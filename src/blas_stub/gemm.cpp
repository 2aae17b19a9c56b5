// SPDX-License-Identifier: MIT
// Where there is no OpenBLAS: right, and slow.
#include "blas/gemm.h"

namespace gallop::blas {
namespace {

template <class T>
void plain(long long m, long long n, long long k, T alpha, Factor<T> a, Factor<T> b, T beta, T* c,
           long long stride) {
  const auto at = [](const Factor<T>& f, long long i, long long j) {
    return f.transposed ? f.data[j * f.stride + i] : f.data[i * f.stride + j];
  };
  for (long long i = 0; i < m; ++i) {
    T* row = c + i * stride;
    for (long long j = 0; j < n; ++j) row[j] = beta == 0 ? 0 : row[j] * beta;
    for (long long l = 0; l < k; ++l) {
      const T left = alpha * at(a, i, l);
      for (long long j = 0; j < n; ++j) row[j] += left * at(b, l, j);
    }
  }
}

}  // namespace

void gemm(long long m, long long n, long long k, float alpha, Factor<float> a, Factor<float> b,
          float beta, float* c, long long stride) {
  plain(m, n, k, alpha, a, b, beta, c, stride);
}

void gemm(long long m, long long n, long long k, double alpha, Factor<double> a, Factor<double> b,
          double beta, double* c, long long stride) {
  plain(m, n, k, alpha, a, b, beta, c, stride);
}

OneThreadEach::OneThreadEach() = default;
OneThreadEach::~OneThreadEach() = default;

}  // namespace gallop::blas
