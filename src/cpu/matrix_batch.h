// SPDX-License-Identifier: MIT
// What stages of a rule over matrices ask for, done for all matrices of one shape at once.
#pragma once

#include <algorithm>
#include <numeric>
#include <span>

#include "blas/blas.h"
#include "core/matrices.h"
#include "cpu/norms.h"
#include "cpu/tensor.h"
#include "cpu/thread_pool.h"
#include "optimizer/rule.h"

namespace gallop::cpu {

// Products are shared out in tiles of their result.
inline constexpr Index kTile = 128, kWideTile = 512;

// Planes and squares of scratch begin at multiples of this many elements.
inline Index aligned(Index n) { return (n + 63) / 64 * 64; }
inline Index shorter_side(const View& v) { return std::min(v.rows, v.columns); }

// What refine_bases needs for a matrix: a square, its diagonal, LAPACK's work and an order.
template <class T>
Index refine_work(const View& v) {
  const Index n = std::max(v.left ? v.rows : 0, v.right ? v.columns : 0);
  return aligned(n * n) + aligned(n) + aligned(blas::orthonormal_work(n)) +
         aligned(n * static_cast<Index>(sizeof(Index) / sizeof(T)));
}

// f(i) for i in [0, tasks), over the threads.
template <class F>
void for_tasks(int threads, Index tasks, F f) {
  auto share = [&](int i, int count) {
    for (Index task = i; task < tasks; task += count) f(task);
  };
  ThreadPool::instance().run(static_cast<int>(std::min<Index>(threads, tasks)), share);
}

template <class T>
class Batch final : public LinearOnHost {
 public:
  // spare: a plane for every tensor, which changes places with the planes; memory: two squares and
  // what refine_bases needs, for every matrix.
  Batch(const Rule& rule, std::span<Tensor> tensors, int threads, const Norms& norms, Bases change,
        T*& spare, T* memory)
      : LinearOnHost(change),
        rule_(rule),
        tensors_(tensors),
        threads_(threads),
        norms_(norms),
        view_(tensors.front().view),
        wide_(view_.rows <= view_.columns),
        side_(shorter_side(view_)),
        count_(static_cast<Index>(tensors.size()) * view_.batches),
        spare_(spare),
        squares_(memory),
        work_(squares_ + 2 * count_ * aligned(side_ * side_)) {}

  void scale_rows(int plane, int value) override {
    for_tasks(threads_, count_ * view_.rows, [&](Index task) {
      const Index tensor = task / (view_.batches * view_.rows),
                  row = task % (view_.batches * view_.rows);
      const Tensor& t = tensors_[static_cast<size_t>(tensor)];
      const T factor = static_cast<T>(norms_.row_values(t.index, value)[row]);
      T* x = static_cast<T*>(t.state[plane]) + row * view_.columns;
      for (Index c = 0; c < view_.columns; ++c) x[c] *= factor;
    });
  }

  void gram(Square s, int plane) override {
    for_half_tiles(
        side_, [&](Index m, Tile t) { gram_tile(t, matrix(plane, m), wide_, 1, 0, square(s, m)); });
  }

  void polynomial(Square s, double b, double c, Square from) override {
    for_half_tiles(side_, [&](Index m, Tile t) {
      const T* a = square(from, m);
      T* out = square(s, m);
      copy(t, a, out, side_);
      product(t, side_, c, {a + t.row * side_, side_}, {a + t.column, side_}, b, out, side_);
      mirror(out, t, side_);
    });
  }

  void apply(int plane, double factor, Square s) override {
    const Index stride = view_.columns;
    for_tiles([&](Index m, Tile t) {
      const T *x = matrix(plane, m), *a = square(s, m);
      T* out = spare(m);
      copy(t, x, out, stride);
      if (wide_) {
        product(t, side_, 1, {a + t.row * side_, side_}, {x + t.column, stride}, factor, out,
                stride);
      } else {
        product(t, side_, 1, {x + t.row * stride, stride}, {a + t.column, side_}, factor, out,
                stride);
      }
    });
    take_spare(plane);
  }

  void add_grams(Sides g, int plane, double weight) override {
    for (bool left : {true, false}) {
      if (!has(g, left)) continue;
      for_half_tiles(length(left), [&](Index m, Tile t) {
        gram_tile(t, matrix(plane, m), left, weight, 1 - weight, pair(g, left, m));
      });
    }
  }

  void rotate(int plane, Sides b, bool back) override {
    const Index stride = view_.columns;
    for (bool left : {true, false}) {
      if (!has(b, left)) continue;
      for_tiles([&](Index m, Tile t) {
        const T *x = matrix(plane, m), *basis = pair(b, left, m);
        const Index n = length(left);
        if (left) {
          product(t, n, 1, {basis + (back ? t.row : t.row * n), n, back}, {x + t.column, stride}, 0,
                  spare(m), stride);
        } else {
          product(t, n, 1, {x + t.row * stride, stride},
                  {basis + (back ? t.column : t.column * n), n, !back}, 0, spare(m), stride);
        }
      });
      take_spare(plane);
    }
  }

 private:
  void eigenbases(Sides b, Sides g) override {
    for_tasks(threads_, 2 * count_, [&](Index task) {
      const bool left = task % 2 == 0;
      if (!has(g, left)) return;
      const Index n = length(left);
      T* basis = pair(b, left, task / 2);
      std::copy_n(pair(g, left, task / 2), n * n, basis);
      blas::eigenbasis(n, basis);
    });
  }

  void refine_bases(Sides b, Sides g, int plane) override {
    for (bool left : {true, false}) {
      if (!has(g, left)) continue;
      const Index n = length(left);
      for_tasks(threads_, count_, [&](Index m) {
        T *product = work_ + m * refine_work<T>(view_), *value = product + aligned(n * n);
        T *work = value + aligned(n), *basis = pair(b, left, m);
        auto* order = reinterpret_cast<Index*>(work + aligned(blas::orthonormal_work(n)));
        blas::gemm(n, n, n, T(1), {basis, n}, {pair(g, left, m), n}, T(0), product, n);
        std::iota(order, order + n, Index{0});
        for (Index i = 0; i < n; ++i) {
          value[i] = std::inner_product(basis + i * n, basis + (i + 1) * n, product + i * n, T(0));
        }
        std::sort(order, order + n, [value](Index i, Index j) {
          return value[i] != value[j] ? value[i] > value[j] : i < j;
        });
        for (Index i = 0; i < n; ++i) std::copy_n(product + order[i] * n, n, basis + i * n);
        blas::orthonormal_rows(n, basis, work);
        permute(matrix(plane, m), spare(m), order, left);
      });
      take_spare(plane);
    }
  }

  struct Tile {
    Index row, column, rows, columns;
  };

  T* matrix(int plane, Index m) const {
    const Tensor& t = tensors_[static_cast<size_t>(m / view_.batches)];
    return static_cast<T*>(t.state[plane]) + m % view_.batches * view_.rows * view_.columns;
  }
  T* spare(Index m) const {
    return spare_ + m / view_.batches * aligned(tensors_.front().n) +
           m % view_.batches * view_.rows * view_.columns;
  }
  T* square(Square s, Index m) const {
    return squares_ + ((s == square1 ? 0 : count_) + m) * aligned(side_ * side_);
  }

  bool has(Sides s, bool left) const {
    return tensors_.front().state[left ? s.left : s.right] != nullptr;
  }
  Index length(bool left) const { return left ? view_.rows : view_.columns; }
  T* pair(Sides s, bool left, Index m) const {
    const Tensor& t = tensors_[static_cast<size_t>(m / view_.batches)];
    return static_cast<T*>(t.state[left ? s.left : s.right]) +
           m % view_.batches * length(left) * length(left);
  }

  // f(matrix, tile) for tiles on and below the diagonal of every square.
  template <class F>
  void for_half_tiles(Index side, F f) {
    const Index tiles = (side + kTile - 1) / kTile, half = tiles * (tiles + 1) / 2;
    for_tasks(threads_, count_ * half, [&](Index task) {
      Index row = 0, at = task % half;
      while (at > row) at -= ++row;
      const auto length = [&](Index tile) { return std::min(kTile, side - tile * kTile); };
      f(task / half, Tile{row * kTile, at * kTile, length(row), length(at)});
    });
  }
  template <class F>
  void for_tiles(F f) {
    const Index down = (view_.rows + kTile - 1) / kTile;
    const Index across = (view_.columns + kWideTile - 1) / kWideTile;
    for_tasks(threads_, count_ * down * across, [&](Index task) {
      const Index at = task % (down * across), row = at / across * kTile,
                  column = at % across * kWideTile;
      f(task / (down * across), Tile{row, column, std::min(kTile, view_.rows - row),
                                     std::min(kWideTile, view_.columns - column)});
    });
  }

  static void product(const Tile& t, Index k, double alpha, blas::Factor<T> a, blas::Factor<T> b,
                      double beta, T* out, Index stride) {
    blas::gemm(t.rows, t.columns, k, static_cast<T>(alpha), a, b, static_cast<T>(beta),
               out + t.row * stride + t.column, stride);
  }
  static void copy(const Tile& t, const T* from, T* to, Index stride) {
    for (Index r = t.row; r < t.row + t.rows; ++r) {
      std::copy_n(from + r * stride + t.column, t.columns, to + r * stride + t.column);
    }
  }
  // A tile of out = beta out + alpha X X^T, or X^T X, and what it is mirrored in the diagonal.
  void gram_tile(const Tile& t, const T* x, bool of_rows, double alpha, double beta, T* out) const {
    const Index stride = view_.columns;
    if (of_rows) {
      product(t, stride, alpha, {x + t.row * stride, stride}, {x + t.column * stride, stride, true},
              beta, out, view_.rows);
    } else {
      product(t, view_.rows, alpha, {x + t.row, stride, true}, {x + t.column, stride}, beta, out,
              view_.columns);
    }
    mirror(out, t, of_rows ? view_.rows : view_.columns);
  }
  static void mirror(T* out, const Tile& t, Index side) {
    if (t.row == t.column) return;
    for (Index r = t.row; r < t.row + t.rows; ++r) {
      for (Index c = t.column; c < t.column + t.columns; ++c) out[c * side + r] = out[r * side + c];
    }
  }
  void permute(const T* x, T* out, const Index* order, bool rows) const {
    for (Index r = 0; r < view_.rows; ++r) {
      for (Index c = 0; c < view_.columns; ++c) {
        out[r * view_.columns + c] =
            rows ? x[order[r] * view_.columns + c] : x[r * view_.columns + order[c]];
      }
    }
  }
  // What was computed into the spare plane becomes the plane.
  void take_spare(int plane) {
    const Index n = tensors_.front().n;
    const auto spare_of = [&](Index i) { return spare_ + i * aligned(n); };
    const auto count = static_cast<Index>(tensors_.size());
    if (!rule_.info.states[static_cast<size_t>(plane)].scratch) {
      return for_tasks(threads_, count, [&](Index i) {
        std::copy_n(spare_of(i), n, static_cast<T*>(tensors_[static_cast<size_t>(i)].state[plane]));
      });
    }
    // Scratch planes of a batch lie one after the other, as the spare one does.
    T* before = static_cast<T*>(tensors_.front().state[plane]);
    for (Index i = 0; i < count; ++i) tensors_[static_cast<size_t>(i)].state[plane] = spare_of(i);
    spare_ = before;
  }

  const Rule& rule_;
  std::span<Tensor> tensors_;
  int threads_;
  const Norms& norms_;
  View view_;
  bool wide_;
  Index side_, count_;
  T*& spare_;
  T *squares_, *work_;
};

}  // namespace gallop::cpu
