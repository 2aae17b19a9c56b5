// SPDX-License-Identifier: MIT
// What a rule's between() works on, by one block for one tensor, or several for a large one. See
// Vectors in core/norms.h.
#pragma once

#include "cuda/norm_data.h"
#include "cuda/team.cuh"

namespace gallop::cuda {
namespace {

class DeviceVectors {
 public:
  using Number = double;

  __device__ DeviceVectors(const Tensor& tensor, const NormTensor& norm, const Share& share,
                           int pass)
      : t_(tensor),
        n_(norm),
        together_(norm.view.batches == 1),
        team_(share.part, share.parts, norm.meetings + pass),
        first_(team_.first()),
        stride_(team_.stride()) {
    for (int i = 0; i < detail::kMaxTensorValues; ++i) values_[i] = n_.tensor_values[i];
  }

  // One thread of all that work on the tensor.
  __device__ bool is_first() const { return first_ == 0; }
  __device__ bool matrix() const { return n_.view.matrix; }
  __device__ long long rows() const { return n_.view.rows; }
  __device__ long long columns() const { return n_.view.columns; }
  __device__ double elements() const {
    return static_cast<double>(n_.view.batches) * static_cast<double>(n_.view.rows) *
           static_cast<double>(n_.view.columns);
  }
  __device__ double total(int q) const { return totals_[q]; }
  __device__ double row_sum(int q, long long r) const {
    double sum = 0;
#pragma unroll 8
    for (unsigned tile = 0; tile < n_.column_tiles; ++tile) {
      sum += n_.row_partials[q][r * n_.column_tiles + tile];
    }
    return sum;
  }
  __device__ double column_sum(int q, long long c) const { return n_.column_sums[q][c]; }
  __device__ double state_before(int j, long long at) const {
    if (t_.state_storage[j] == Storage::f64) return static_cast<const double*>(t_.state[j])[at];
    return static_cast<double>(static_cast<const float*>(t_.state[j])[at]);
  }
  __device__ void state(int j, long long at, double x) {
    n_.states[j][at] = x;
    if (t_.state_storage[j] == Storage::f64) {
      static_cast<double*>(t_.state[j])[at] = x;
    } else {
      static_cast<float*>(t_.state[j])[at] = static_cast<float>(x);
    }
  }
  __device__ double state(int j, long long at) const { return n_.states[j][at]; }
  __device__ double tensor(int i) const { return values_[i]; }
  __device__ void tensor(int i, double x) { values_[i] = x; }
  __device__ void row(int i, long long r, double x) { n_.row_values[i][r] = x; }
  __device__ void column(int i, long long c, double x) {
    n_.column_values[i][c] = x;
    n_.narrow[i][c] = static_cast<float>(x);
  }

  // One matrix is the whole block's; of many, each thread takes its own.
  template <class F>
  __device__ void for_batches(F f) {
    if (together_) return f(0);
    for (long long b = threadIdx.x; b < n_.view.batches; b += kThreads) f(b);
  }
  template <class F>
  __device__ void for_rows(long long b, F f) {
    each(b * rows(), rows(), f);
  }
  template <class F>
  __device__ void for_columns(long long b, F f) {
    each(b * columns(), columns(), f);
  }
  template <class F>
  __device__ double sum_rows(long long b, F f) {
    double sum = 0;
    strided(b * rows(), rows(), [&](long long r) { sum += f(r); });
    return together_ ? reduced(sum, [](double x, double y) { return x + y; }) : sum;
  }
  template <class F>
  __device__ double max_rows(long long b, F f) {
    double most = -kInfinity;
    strided(b * rows(), rows(), [&](long long r) { most = max(most, f(r)); });
    return together_ ? reduced(most, [](double x, double y) { return max(x, y); }) : most;
  }

  // Every block of a team for itself: that is faster than to meet.
  __device__ void add_tiles(int q) {
    double sum = 0;
#pragma unroll 8
    for (Index tile = threadIdx.x; tile < n_.tiles; tile += kThreads) {
      sum += n_.tile_sums[tile * detail::kMaxSums + q];
    }
    totals_[q] = reduced_in_block(sum, [](double x, double y) { return x + y; });
  }
  // Tensors of many row tiles have several threads for each column.
  __device__ void add_row_tiles(int q) {
    const Index all = n_.view.batches * columns(), tiles = n_.row_tiles;
    const Index most = stride_ / all < tiles ? stride_ / all : tiles;
    const Index slices = most > 1 ? most : 1;
    const Index length = (tiles + slices - 1) / slices;
    const auto partials_of = [&](Index i) {
      return n_.column_partials[q] + i / columns() * tiles * columns() + i % columns();
    };
    const auto sum_of = [&](const double* from, Index first, Index last, Index step) {
      double sum = 0;
#pragma unroll 8
      for (Index tile = first; tile < last; tile += step) sum += __ldcg(from + tile * columns());
      return sum;
    };
    for (Index i = first_; i < all * slices; i += stride_) {
      const Index first = i / all * length, last = first + length < tiles ? first + length : tiles;
      if (first >= last) continue;
      double* from = partials_of(i % all);
      const double sum = sum_of(from, first, last, 1);
      (slices == 1 ? n_.column_sums[q][i] : from[first * columns()]) = sum;
    }
    if (slices == 1) return;
    team_.meet();
    for (Index i = first_; i < all; i += stride_) {
      n_.column_sums[q][i] = sum_of(partials_of(i), 0, tiles, length);
    }
  }
  __device__ void store_tensor_values() const {
    if (first_ < detail::kMaxTensorValues) {
      n_.tensor_values[threadIdx.x] = values_[threadIdx.x];
    }
  }

 private:
  template <class F>
  __device__ void strided(long long first, long long count, F f) {
    const long long step = together_ ? stride_ : 1;
#pragma unroll 4
    for (long long i = together_ ? first_ : 0; i < count; i += step) f(first + i);
  }
  template <class F>
  __device__ void each(long long first, long long count, F f) {
    strided(first, count, f);
    if (together_) __syncthreads();
  }
  // In an order that does not depend on timing; known to every thread.
  template <class Op>
  __device__ double reduced_in_block(double value, Op op) {
    __shared__ double values[kThreads];
    __syncthreads();
    values[threadIdx.x] = value;
    for (unsigned half = kThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.x < half) {
        values[threadIdx.x] = op(values[threadIdx.x], values[threadIdx.x + half]);
      }
    }
    __syncthreads();
    return values[0];
  }
  template <class Op>
  __device__ double reduced(double value, Op op) {
    const double own = reduced_in_block(value, op);
    if (team_.parts() == 1) return own;
    // In turns in one half and the other: no block is still reading the one that is written.
    double* sums = n_.left_sums + (turn_ ^= kMostParts);
    if (threadIdx.x == 0) sums[team_.part()] = own;
    team_.meet();
    __shared__ double left[kMostParts];
    if (threadIdx.x < team_.parts()) left[threadIdx.x] = __ldcg(sums + threadIdx.x);
    __syncthreads();
    double all = left[0];
    for (unsigned part = 1; part < team_.parts(); ++part) all = op(all, left[part]);
    return all;
  }

  const Tensor& t_;
  const NormTensor& n_;
  bool together_;
  Team team_;
  unsigned first_, stride_, turn_ = 0;
  double totals_[detail::kMaxSums], values_[detail::kMaxTensorValues];
};

}  // namespace
}  // namespace gallop::cuda
