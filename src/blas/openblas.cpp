// SPDX-License-Identifier: MIT
#include <cblas.h>

#include <mutex>

#include "blas/gemm.h"

namespace gallop::blas {
namespace {

CBLAS_TRANSPOSE op(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }
blasint narrow(long long n) { return static_cast<blasint>(n); }

std::mutex g_mutex;
int g_users = 0, g_threads_before = 1;

}  // namespace

void gemm(long long m, long long n, long long k, float alpha, Factor<float> a, Factor<float> b,
          float beta, float* c, long long stride) {
  cblas_sgemm(CblasRowMajor, op(a.transposed), op(b.transposed), narrow(m), narrow(n), narrow(k),
              alpha, a.data, narrow(a.stride), b.data, narrow(b.stride), beta, c, narrow(stride));
}

void gemm(long long m, long long n, long long k, double alpha, Factor<double> a, Factor<double> b,
          double beta, double* c, long long stride) {
  cblas_dgemm(CblasRowMajor, op(a.transposed), op(b.transposed), narrow(m), narrow(n), narrow(k),
              alpha, a.data, narrow(a.stride), b.data, narrow(b.stride), beta, c, narrow(stride));
}

// OpenBLAS has one number of threads for the whole process: the last user gives it back.
OneThreadEach::OneThreadEach() {
  const std::lock_guard lock(g_mutex);
  if (g_users++ > 0) return;
  g_threads_before = openblas_get_num_threads();
  openblas_set_num_threads(1);
}

OneThreadEach::~OneThreadEach() {
  const std::lock_guard lock(g_mutex);
  if (--g_users == 0) openblas_set_num_threads(g_threads_before);
}

}  // namespace gallop::blas
