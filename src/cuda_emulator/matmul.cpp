// SPDX-License-Identifier: MIT
// In place of cuBLASLt: what src/cuda/matmul.cpp does, with the CPU's products.
#include "cuda/matmul.h"

#include <set>
#include <vector>

#include "blas/blas.h"
#include "core/convert.h"
#include "cuda/runtime.h"
#include "cuda_emulator/stream.h"

namespace gallop::cuda {
namespace {

double value(float x) { return x; }
double value(double x) { return x; }
double value(Half x) { return from_bf16(x); }
void put(double x, double& to) { to = x; }
void put(double x, float& to) { to = static_cast<float>(x); }
void put(double x, Half& to) { to = to_bf16_nearest(static_cast<float>(x)); }

template <class T>
std::vector<double> wide(const void* data, long long first, long long n) {
  const T* from = static_cast<const T*>(data) + first;
  std::vector<double> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) out[i] = value(from[i]);
  return out;
}

// Columns of a matrix are rows of its transpose: D^T = op(B)^T op(A)^T.
template <class T>
void multiply(const Product& p, double alpha, const void* a, const void* b, double beta,
              const void* c, void* d) {
  const blas::OneThreadEach serial;
  std::vector<double> sum(static_cast<size_t>(p.m * p.n));
  for (long long i = 0; i < p.count; ++i) {
    const auto x = wide<T>(a, i * p.stride_a, p.m * p.k), y = wide<T>(b, i * p.stride_b, p.n * p.k);
    blas::gemm(p.n, p.m, p.k, alpha, {y.data(), p.transpose_b ? p.n : p.k, p.transpose_b},
               {x.data(), p.transpose_a ? p.k : p.m, p.transpose_a}, 0.0, sum.data(), p.m);
    const T* plus = static_cast<const T*>(c) + i * p.stride_c;
    T* out = static_cast<T*>(d) + i * p.stride_c;
    for (size_t j = 0; j < sum.size(); ++j) {
      put(beta == 0 ? sum[j] : sum[j] + beta * value(plus[j]), out[j]);
    }
  }
}

}  // namespace

struct Matmul::Impl {
  std::set<Product> prepared;
};

Matmul::Matmul(int) : impl_(new Impl) {}
Matmul::~Matmul() = default;

void Matmul::prepare(const Product& p) { impl_->prepared.insert(p); }

void Matmul::run(const Product& p, double alpha, const void* a, const void* b, double beta,
                 const void* c, void* d, void* stream) {
  prepare(p);
  check(emulator::put_on(static_cast<cudaStream_t>(stream),
                         [=] {
                           switch (p.element) {
                             case Element::bf16:
                               return multiply<Half>(p, alpha, a, b, beta, c, d);
                             case Element::f32:
                               return multiply<float>(p, alpha, a, b, beta, c, d);
                             case Element::f64:
                               return multiply<double>(p, alpha, a, b, beta, c, d);
                           }
                         }),
        "multiplying matrices");
}

}  // namespace gallop::cuda
