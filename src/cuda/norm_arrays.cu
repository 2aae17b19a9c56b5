// SPDX-License-Identifier: MIT
#include "cuda/norm_arrays.h"

#include "cuda/launch.cuh"
#include "cuda/norm_kernels.cuh"

namespace gallop::cuda {
namespace {

// A rule whose only pass adds its gradient up.
template <Over O>
struct AddingUp {
  static constexpr State states[1] = {{.name = "none"}};
  struct Hyper {};
  template <class T>
  struct Coef {
    T none;
  };
  static constexpr Sum sums[1] = {{O, 1u}};
  static constexpr Pass passes[1] = {{.reads = 0, .writes = 0, .param = false}};
  static constexpr Values values{0, 0, 0};
  template <int, bool, class T, class K, class X>
  static __device__ T pass(T p, T g, T (&)[1], const K&, const X&, T (&sum)[1]) {
    sum[0] = g;
    return p;
  }
};

template <class T, Over O, bool Matrix>
__global__ void __launch_bounds__(kTileThreads)
    add_up(const __grid_constant__ Step s, unsigned tensor, const __grid_constant__ NormTensor norm,
           void* summands) {
  using Rule = AddingUp<O>;
  constexpr Path kPath = sizeof(T) == 8 ? Path::f64 : Path::f32;
  if (is_skipped(s) || s.grads[tensor] == nullptr) return;
  __shared__ Job<Rule, T> job;
  if (threadIdx.x == 0) {
    job.scale = job.factor = T(1);
    job.limit = static_cast<T>(kInfinity);
  }
  __syncthreads();
  for (unsigned tile = blockIdx.x; tile < norm.tiles; tile += gridDim.x) {
    update_tile<Rule, 0, Matrix, 0, kPath>(s, norm, {tensor, tile}, job, summands);
    __syncthreads();
  }
}

template <class T>
__global__ void spread(const __grid_constant__ NormTensor norm, bool rows, int value, T* out,
                       Index n) {
  const View& v = norm.view;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += static_cast<Index>(gridDim.x) * blockDim.x) {
    const Index row = i / v.columns, column = row / v.rows * v.columns + i % v.columns;
    out[i] = static_cast<T>(rows ? norm.row_values[value][row] : norm.column_values[value][column]);
  }
}

template <class T, Over O>
cudaError_t launch_adding(const Step& step, unsigned tensor, const NormTensor& norm, void* summands,
                          void* stream) {
  const unsigned blocks = norm.tiles < 1024 ? norm.tiles : 1024;
  return norm.view.matrix ? launch(&add_up<T, O, true>, blocks, kTileThreads, stream, step, tensor,
                                   norm, summands)
                          : launch(&add_up<T, O, false>, blocks, kTileThreads, stream, step, tensor,
                                   norm, summands);
}

template <class T>
cudaError_t launch_adding(const Step& step, unsigned tensor, const NormTensor& norm, Over over,
                          void* summands, void* stream) {
  if (over == Over::row) return launch_adding<T, Over::row>(step, tensor, norm, summands, stream);
  if (over == Over::column) {
    return launch_adding<T, Over::column>(step, tensor, norm, summands, stream);
  }
  return launch_adding<T, Over::tensor>(step, tensor, norm, summands, stream);
}

}  // namespace

cudaError_t launch_spread(bool f64, const NormTensor& norm, Over over, int value, void* out,
                          Index n, void* stream) {
  const Index blocks = (n + 255) / 256;
  const unsigned grid = static_cast<unsigned>(blocks < 65536 ? blocks : 65536);
  const bool rows = over == Over::row;
  return f64 ? launch(&spread<double>, grid, 256, stream, norm, rows, value,
                      static_cast<double*>(out), n)
             : launch(&spread<float>, grid, 256, stream, norm, rows, value,
                      static_cast<float*>(out), n);
}

cudaError_t launch_add_up(bool f64, const Step& step, unsigned tensor, const NormTensor& norm,
                          int q, Over over, const void* summands, void* stream) {
  NormTensor first = norm;  // its sum 0 is to be the rule's sum q
  first.tile_sums += q;
  first.row_partials[0] = norm.row_partials[q];
  first.column_partials[0] = norm.column_partials[q];
  void* in = const_cast<void*>(summands);
  return f64 ? launch_adding<double>(step, tensor, first, over, in, stream)
             : launch_adding<float>(step, tensor, first, over, in, stream);
}

}  // namespace gallop::cuda
