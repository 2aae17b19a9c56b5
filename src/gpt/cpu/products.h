// SPDX-License-Identifier: MIT
// Products of matrices over all threads: tiles that depend on the shape alone, so that bits do not
// depend on threads.
#pragma once

#include <algorithm>
#include <atomic>

#include "blas/blas.h"
#include "cpu/thread_pool.h"

namespace gallop::gpt::cpu {

struct Tiling {
  blas::Index rows = 128, columns = 384;  // as fast as any larger, measured with OpenBLAS

  Tiling(blas::Index m, blas::Index n) {
    constexpr blas::Index kEnough = 32, kLeastRows = 32, kLeastColumns = 64;
    while (count(m, n) < kEnough && (rows > kLeastRows || columns > kLeastColumns)) {
      if (columns > kLeastColumns && columns >= 2 * rows) {
        columns /= 2;
      } else {
        rows /= 2;
      }
      rows = std::max(rows, kLeastRows);
    }
  }
  static blas::Index pieces(blas::Index n, blas::Index of) { return (n + of - 1) / of; }
  blas::Index count(blas::Index m, blas::Index n) const {
    return pieces(m, rows) * pieces(n, columns);
  }
};

// C = op(A) op(B) + beta C
template <class T>
void product(int threads, blas::Index m, blas::Index n, blas::Index k, blas::Factor<T> a,
             blas::Factor<T> b, T beta, T* c, blas::Index stride) {
  const Tiling tile(m, n);
  const blas::Index across = Tiling::pieces(n, tile.columns), tiles = tile.count(m, n);
  std::atomic<blas::Index> next{0};
  auto work = [&](int, int) {
    for (blas::Index t = next++; t < tiles; t = next++) {
      const blas::Index row = t / across * tile.rows, column = t % across * tile.columns;
      blas::Factor<T> left = a, right = b;
      left.data += a.transposed ? row : row * a.stride;
      right.data += b.transposed ? column * b.stride : column;
      blas::gemm(std::min(tile.rows, m - row), std::min(tile.columns, n - column), k, T(1), left,
                 right, beta, c + row * stride + column, stride);
    }
  };
  gallop::cpu::ThreadPool::instance().run(static_cast<int>(std::min<blas::Index>(threads, tiles)),
                                          work);
}

}  // namespace gallop::gpt::cpu
