// SPDX-License-Identifier: MIT
#include "cuda/bases.h"

#include "cuda/launch.cuh"
#include "cuda/orthonormal.cuh"
#include "cuda/team_product.cuh"

namespace gallop::cuda {
namespace {

__device__ Index side_of(const View& v, bool left) { return left ? v.rows : v.columns; }

template <class T>
__device__ T* square_at(const Tensor& t, const View& v, int state, bool left, Index matrix) {
  const Index n = side_of(v, left);
  return static_cast<T*>(t.state[state]) + matrix * n * n;
}

template <class T>
__global__ void add_square(const __grid_constant__ BaseStates on, unsigned member, Index matrix,
                           int state, bool left, double weight, const T* square) {
  if (on.change[member] == kStepSkipped) return;
  const Tensor& t = on.tensors[on.members[member]];
  T* g = square_at<T>(t, on.view, state, left, matrix);
  const Index n = side_of(on.view, left);
  const T keep = static_cast<T>(1 - weight), add = static_cast<T>(weight);
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < n * n;
       i += static_cast<Index>(gridDim.x) * blockDim.x) {
    g[i] = gallop::fma(keep, g[i], add * square[i]);
  }
}

// One team at work on one matrix.
template <class T>
class Refiner {
 public:
  __device__ Refiner(const Refining& r, Team& team, unsigned team_number)
      : r_(r), team_(team), view_(r.on.view) {
    const Index n = view_.rows > view_.columns ? view_.rows : view_.columns;
    product_ = static_cast<T*>(r.work) + team_number * refining_elements(n);
    triangles_ = product_ + n * n;
    values_ = triangles_ + panels(n) * kPanel * kPanel;
    order_ = reinterpret_cast<unsigned*>(values_ + n);
  }

  static __host__ __device__ Index refining_elements(Index n) {
    return n * n + panels(n) * kPanel * kPanel + 2 * n;
  }

  __device__ void run(unsigned member, Index matrix) {
    const Tensor& t = r_.on.tensors[r_.on.members[member]];
    const Index first = matrix * view_.rows * view_.columns;
    T* moment = static_cast<T*>(t.state[r_.turned]) + first;
    T* squares = static_cast<T*>(t.state[r_.sorted]) + first;
    T* spare = static_cast<T*>(r_.spare) + member * r_.apart + first;
    rotate(t, matrix, moment, spare, true);
    for (int left = 1; left >= 0; --left) {
      if (!has(left)) continue;
      refine(square_at<T>(t, view_, base(left), left, matrix),
             square_at<T>(t, view_, left ? r_.grams.left : r_.grams.right, left, matrix),
             side_of(view_, left));
      sort(squares, spare, left);
    }
    rotate(t, matrix, moment, spare, false);
  }

 private:
  __device__ bool has(bool left) const { return left ? view_.left : view_.right; }
  __device__ int base(bool left) const { return left ? r_.bases.left : r_.bases.right; }

  __device__ void rotate(const Tensor& t, Index matrix, T* x, T* spare, bool back) {
    const Index rows = view_.rows, columns = view_.columns;
    for (int left = 1; left >= 0; --left) {
      if (!has(left)) continue;
      const T* b = square_at<T>(t, view_, base(left), left, matrix);
      if (left) {
        multiply<T>(team_, rows, columns, rows, {b, rows, back}, {x, columns, false}, spare);
      } else {
        multiply<T>(team_, rows, columns, columns, {x, columns, false}, {b, columns, !back}, spare);
      }
      team_.meet();
      copy(spare, x, rows * columns);
    }
  }

  __device__ void refine(T* basis, const T* gram, Index n) {
    multiply<T>(team_, n, n, n, {basis, n, false}, {gram, n, false}, product_);
    team_.meet();
    // b G b^T; what is not a number goes last.
    for (Index i = team_.first() / 32; i < n; i += team_.stride() / 32) {
      double sum = 0;
      for (Index c = threadIdx.x % 32; c < n; c += 32) {
        sum += static_cast<double>(basis[i * n + c]) * static_cast<double>(product_[i * n + c]);
      }
      sum = warp_total(sum);
      if (threadIdx.x % 32 == 0) values_[i] = static_cast<T>(sum == sum ? sum : -kInfinity);
    }
    team_.meet();
    for (Index i = team_.first(); i < n; i += team_.stride()) {
      const T mine = values_[i];
      unsigned before = 0;
      for (Index j = 0; j < n; ++j) {
        before += values_[j] > mine || (values_[j] == mine && j < i);
      }
      order_[before] = static_cast<unsigned>(i);
    }
    team_.meet();
    for (Index i = team_.first(); i < n * n; i += team_.stride()) {
      basis[i] = product_[order_[i / n] * n + i % n];
    }
    team_.meet();
    orthonormal_rows(team_, n, basis, product_, triangles_);
    team_.meet();
  }

  __device__ void sort(T* x, T* spare, bool rows) {
    const Index columns = view_.columns, all = view_.rows * columns;
    for (Index i = team_.first(); i < all; i += team_.stride()) {
      const Index row = i / columns, column = i % columns;
      spare[i] = rows ? x[order_[row] * columns + column] : x[row * columns + order_[column]];
    }
    team_.meet();
    copy(spare, x, all);
  }

  __device__ void copy(const T* from, T* to, Index n) {
    for (Index i = team_.first(); i < n; i += team_.stride()) to[i] = from[i];
    team_.meet();
  }

  const Refining& r_;
  Team& team_;
  const View& view_;
  T *product_, *triangles_, *values_;
  unsigned* order_;
};

template <class T>
__global__ void __launch_bounds__(kThreads) refine_all(const __grid_constant__ Refining r) {
  const unsigned number = blockIdx.x / r.blocks_a_team;
  Team team(blockIdx.x % r.blocks_a_team, r.blocks_a_team, r.met + number);
  Refiner<T> refiner(r, team, number);
  const Index matrices = r.on.count * r.on.view.batches;
  for (Index m = number; m < matrices; m += r.teams) {
    const unsigned member = static_cast<unsigned>(m / r.on.view.batches);
    if (r.on.change[member] != static_cast<int>(Bases::refine)) continue;
    refiner.run(member, m % r.on.view.batches);
  }
}

}  // namespace

cudaError_t launch_add_square(const BaseStates& on, unsigned member, Index matrix, int state,
                              bool left, double weight, const void* square, void* stream) {
  constexpr unsigned kBlocks = 1024;
  return on.wide ? launch(&add_square<double>, kBlocks, 256, stream, on, member, matrix, state,
                          left, weight, static_cast<const double*>(square))
                 : launch(&add_square<float>, kBlocks, 256, stream, on, member, matrix, state, left,
                          weight, static_cast<const float*>(square));
}

Index refining_work(const View& view) {
  return Refiner<float>::refining_elements(view.rows > view.columns ? view.rows : view.columns);
}

cudaError_t launch_refine(const Refining& r, void* stream) {
  Refining argument = r;
  void* arguments[] = {&argument};
  return cudaLaunchCooperativeKernel(
      r.on.wide ? address_of(&refine_all<double>) : address_of(&refine_all<float>),
      dim3(r.teams * r.blocks_a_team), dim3(kThreads), arguments, 0,
      static_cast<cudaStream_t>(stream));
}

}  // namespace gallop::cuda
