// SPDX-License-Identifier: MIT
// In place of cuBLASLt: what src/cuda/matmul.cpp does, with the CPU's products.
#include "cuda/matmul.h"

#include <set>
#include <vector>

#include "blas/blas.h"
#include "core/convert.h"
#include "cuda/runtime.h"
#include "cuda_emulator/stream.h"
#include "gallop/error.h"

namespace gallop::cuda {
namespace {

double value(float x) { return x; }
double value(double x) { return x; }
struct Bf16 {
  Half bits;
};
struct F16 {
  Half bits;
};

double value(Bf16 x) { return from_bf16(x.bits); }
double value(F16 x) { return from_f16(x.bits); }
void put(double x, double& to) { to = x; }
void put(double x, float& to) { to = static_cast<float>(x); }
void put(double x, Bf16& to) { to.bits = to_bf16_nearest(static_cast<float>(x)); }
void put(double x, F16& to) { to.bits = to_f16_nearest(static_cast<float>(x)); }

template <class T>
std::vector<double> wide(const void* data, long long first, long long ld, long long rows,
                         long long columns) {
  const T* from = static_cast<const T*>(data) + first;
  std::vector<double> out;
  for (long long column = 0; column < columns; ++column) {
    for (long long row = 0; row < rows; ++row) out.push_back(value(from[column * ld + row]));
  }
  return out;
}

// Columns of a matrix are rows of its transpose: D^T = op(B)^T op(A)^T.
template <class T, class R>
void multiply(const Product& p, double alpha, const void* a, const void* b, double beta,
              const void* c, void* d, const void* bias) {
  const blas::OneThreadEach serial;
  std::vector<double> sum(static_cast<size_t>(p.m * p.n));
  for (long long i = 0; i < p.count; ++i) {
    const auto x =
        wide<T>(a, i * p.stride_a, p.ld_a, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k);
    const auto y =
        wide<T>(b, i * p.stride_b, p.ld_b, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n);
    blas::gemm(p.n, p.m, p.k, alpha, {y.data(), p.transpose_b ? p.n : p.k, p.transpose_b},
               {x.data(), p.transpose_a ? p.k : p.m, p.transpose_a}, 0.0, sum.data(), p.m);
    const R* plus = static_cast<const R*>(c) + i * p.stride_c;
    R* out = static_cast<R*>(d) + i * p.stride_c;
    for (long long column = 0; column < p.n; ++column) {
      for (long long row = 0; row < p.m; ++row) {
        double x_y = sum[static_cast<size_t>(column * p.m + row)];
        if (p.bias) x_y += value(static_cast<const R*>(bias)[row]);
        const long long at = column * p.ld_c + row;
        put(beta == 0 ? x_y : x_y + beta * value(plus[at]), out[at]);
      }
    }
  }
}

}  // namespace

struct Matmul::Impl {
  std::set<Product> prepared;
};

Matmul::Matmul(int) : impl_(new Impl) {}
Matmul::~Matmul() = default;

std::string Matmul::choices() const { return "plain"; }
void Matmul::choose(const std::string& choices) {
  if (choices == this->choices()) return;
  throw Error(ErrorCode::unsupported,
              "products were chosen for '" + choices + "', expected " + this->choices());
}
void Matmul::prepare(const Product& p) { impl_->prepared.insert(p); }

void Matmul::run(const Product& p, double alpha, const void* a, const void* b, double beta,
                 const void* c, void* d, void* stream, const void* bias) {
  prepare(p);
  const auto work = [=] {
    const auto go = [&]<class T>(T) {
      if (p.wide) return multiply<T, float>(p, alpha, a, b, beta, c, d, bias);
      return multiply<T, T>(p, alpha, a, b, beta, c, d, bias);
    };
    switch (p.element) {
      case Element::bf16:
        return go(Bf16{});
      case Element::f16:
        return go(F16{});
      case Element::f32:
      case Element::tf32:
        return go(float{});
      case Element::f64:
        return go(double{});
    }
  };
  check(emulator::put_on(static_cast<cudaStream_t>(stream), work), "multiplying matrices");
}

}  // namespace gallop::cuda
