// SPDX-License-Identifier: MIT
// The CPU loops of one pass of a rule with norms.
#pragma once

#include "cpu/decoded_block.h"
#include "cpu/kernel.h"
#include "cpu/rule_loops.h"

namespace gallop::cpu {
namespace {  // nothing here may leave the object file: see tests/symbols

template <class R, int P, bool Matrix, unsigned Present>
struct NormLoops {
  static constexpr int kN = detail::kStates<R>, kM = detail::sum_count<R>();
  static constexpr Pass kPass = R::passes[P];
  static constexpr bool kWrites = (kPass.writes & kWritesParam) != 0;
  static constexpr bool bit(unsigned mask, int j) { return (Present & mask) >> j & 1; }
  static constexpr bool reads(int j) { return bit(kPass.reads, j); }
  static constexpr bool writes(int j) { return bit(kPass.writes, j); }
  static constexpr bool adds(int q, Over over) { return detail::adds_up<R>(P, Matrix, q, over); }
  static constexpr bool adds_at_all() {
    for (int q = 0; q < kM; ++q) {
      if (adds(q, Over::tensor) || adds(q, Over::row) || adds(q, Over::column)) return true;
    }
    return false;
  }
  // Sums run in this many lanes, whatever the vectors' width: the same bits everywhere.
  static constexpr int kLanes = 16;
  using Lanes = double[kM][kLanes];
  static_assert(kLanes == 16, "fold() halves it four times");

  template <class T>
  struct Streams {
    T* p;
    const T* g;
    T* s[kN];
    const T* column[detail::kMaxColumnValues];
    T scale, limit, factor;
    typename R::template Coef<T> k;
  };

  template <int J = 0, class T>
  static GALLOP_FN void load_states(const Streams<T>& a, T (&t)[kN], Index i) {
    if constexpr (J < kN) {
      t[J] = 0;
      if constexpr (reads(J)) t[J] = a.s[J][i];
      load_states<J + 1>(a, t, i);
    }
  }
  template <int J = 0, class T>
  static GALLOP_FN void store_states(const Streams<T>& a, const T (&t)[kN], Index i) {
    if constexpr (J < kN) {
      if constexpr (writes(J)) a.s[J][i] = t[J];
      store_states<J + 1>(a, t, i);
    }
  }
  template <int Q = 0, class T>
  static GALLOP_FN void add(const T (&sum)[kM], Lanes& lanes, int lane) {
    if constexpr (Q < kM) {
      if constexpr (adds(Q, Over::tensor) || adds(Q, Over::row)) {
        lanes[Q][lane] += static_cast<double>(sum[Q]);
      }
      add<Q + 1>(sum, lanes, lane);
    }
  }
  template <int Q = 0, class T>
  static GALLOP_FN void add_columns(const T (&sum)[kM], double* const* columns, Index i) {
    if constexpr (Q < kM) {
      if constexpr (adds(Q, Over::column)) columns[Q][i] += static_cast<double>(sum[Q]);
      add_columns<Q + 1>(sum, columns, i);
    }
  }

  // Element i of a run within one row, its sums to this lane.
  template <class T>
  static GALLOP_FN void one(const Streams<T>& a, Seen<T> x, Index i, Lanes& lanes, int lane,
                            double* const* columns) {
    T t[kN], sum[kM];
    for (int q = 0; q < kM; ++q) sum[q] = 0;
    load_states(a, t, i);
    T p = 0, g = 0;
    if constexpr (kPass.param) p = a.p[i];
    if constexpr (kPass.grad) g = detail::clamped(a.g[i], a.scale, a.limit) * a.factor;
    if constexpr (Matrix && R::values.column > 0) x.column[0] = a.column[0][i];
    if constexpr (Matrix && R::values.column > 1) x.column[1] = a.column[1][i];
    p = R::template pass<P, Matrix>(p, g, t, a.k, x, sum);
    if constexpr (kWrites) a.p[i] = p;
    store_states(a, t, i);
    add(sum, lanes, lane);
    add_columns(sum, columns, i);
  }

  template <int Q = 0>
  static GALLOP_FN void fold(Lanes& lanes, double (&totals)[kM]) {
    if constexpr (Q < kM) {
      if constexpr (adds(Q, Over::tensor) || adds(Q, Over::row)) {
        double(&lane)[kLanes] = lanes[Q];
        for (int l = 0; l < 8; ++l) lane[l] += lane[l + 8];
        for (int l = 0; l < 4; ++l) lane[l] += lane[l + 4];
        for (int l = 0; l < 2; ++l) lane[l] += lane[l + 2];
        totals[Q] = lane[0] + lane[1];
      }
      fold<Q + 1>(lanes, totals);
    }
  }

  // It may reach past the tensor: a prefetch never faults.
  template <class T>
  static GALLOP_FN void prefetch(const Streams<T>& a, Index i) {
    if constexpr (kPass.param) __builtin_prefetch(a.p + i, kWrites);
    if constexpr (kPass.grad) __builtin_prefetch(a.g + i);
    for (int j = 0; j < kN; ++j) {
      if (writes(j)) __builtin_prefetch(a.s[j] + i, 1);
      if (reads(j) && !writes(j)) __builtin_prefetch(a.s[j] + i);
    }
  }

  // n elements of one row; the column sums' pointers stand at its first.
  template <class T>
  static GALLOP_FN void run(const Streams<T>& a, const Seen<T>& x, Index n, double (&totals)[kM],
                            double* const* columns) {
    Lanes lanes = {};
    Index i = 0;
    constexpr Index kAhead = kAheadBytes / sizeof(T);
    if constexpr (adds_at_all()) {
      for (; i + kLanes <= n; i += kLanes) {
        prefetch(a, i + kAhead);
        GALLOP_VECTORIZE
        for (int l = 0; l < kLanes; ++l) one(a, x, i + l, lanes, l, columns);
      }
      for (Index l = 0; i + l < n; ++l) one(a, x, i + l, lanes, static_cast<int>(l), columns);
    } else {
      constexpr Index kTile = kTileBytes / sizeof(T);
      for (; i + kTile <= n; i += kTile) {
        for (Index line = 0; line < kTile; line += 64 / sizeof(T)) prefetch(a, i + kAhead + line);
        GALLOP_VECTORIZE
        for (Index l = 0; l < kTile; ++l) one(a, x, i + l, lanes, 0, columns);
      }
      GALLOP_VECTORIZE
      for (; i < n; ++i) one(a, x, i, lanes, 0, columns);
    }
    fold(lanes, totals);
  }

  template <class T>
  static Streams<T> streams_of(const KernelArgs& a) {
    Streams<T> s;
    s.p = static_cast<T*>(a.param);
    s.g = static_cast<const T*>(a.grad);
    for (int j = 0; j < kN; ++j) s.s[j] = static_cast<T*>(a.state[j]);
    s.scale = static_cast<T>(a.grad_scale);
    s.limit = static_cast<T>(a.grad_limit);
    s.factor = static_cast<T>(a.grad_factor);
    s.k = detail::narrow<R, T>(a.coef);
    return s;
  }

  // Elements [from, from + n) of the tensor, row by row; the streams stand at the first of them.
  template <class T>
  static GALLOP_FN void rows(Streams<T> a, const NormArgs& norms, Index from, Index n) {
    Seen<T> x = {};
    for (int v = 0; v < R::values.tensor; ++v) x.tensor[v] = static_cast<T>(norms.tensor[v]);
    Index row = from / norms.columns, column = from % norms.columns;
    // Columns are counted through the matrices.
    Index matrix_ends = row / norms.rows, first_column = matrix_ends++ * norms.columns;
    matrix_ends *= norms.rows;
    while (n > 0) {
      const Index length = norms.columns - column < n ? norms.columns - column : n;
      const Index at = first_column + column;
      double* columns[detail::kMaxSums] = {};
      if constexpr (Matrix) {
        for (int v = 0; v < R::values.row; ++v) x.row[v] = static_cast<T>(norms.row[v][row]);
        for (int v = 0; v < R::values.column; ++v) {
          a.column[v] = static_cast<const T*>(norms.column[v]) + at;
        }
        for (int q = 0; q < kM; ++q) {
          if (adds(q, Over::column)) columns[q] = norms.column_sums[q] + (at - norms.first_column);
        }
      }
      double totals[kM];
      run(a, x, length, totals, columns);
      for (int q = 0; q < kM; ++q) {
        if (adds(q, Over::tensor)) norms.sums[q] += totals[q];
        if (adds(q, Over::row)) norms.row_sums[q][row - norms.first_row] += totals[q];
      }
      a.p += length;
      a.g += length;
      for (int j = 0; j < kN; ++j) a.s[j] += length;
      n -= length;
      column = 0;
      if (++row == matrix_ends) {
        matrix_ends += norms.rows;
        first_column += norms.columns;
      }
    }
  }

  template <class T>
  static void direct(const KernelArgs& a) {
    rows(streams_of<T>(a), *a.norms, a.norms->first, a.n);
  }

  static void blocks(const KernelArgs& a) {
    DecodedBlock<kN> b;
    Streams<float> local = streams_of<float>(a);
    for (int j = 0; j < kN; ++j) local.s[j] = b.s[j];
    for (Index first = 0; first < a.n; first += kBlock) {
      b.template load<kPass.reads & Present, kPass.param, kPass.grad>(a, first);
      local.p = b.p;
      local.g = b.g;
      rows(local, *a.norms, a.norms->first + first, b.n);
      b.template store<kPass.writes&(kWritesParam | Present)>(a, first);
    }
  }
};

// Of pass K / 2, for vectors and for matrices in turn; null where there is nothing to do.
template <class R, int K, unsigned Present, Path P>
constexpr Kernel pass_kernel() {
  constexpr bool kMatrix = K % 2 == 1;
  constexpr unsigned kFitting = detail::states_of_form<R>(Present, kMatrix);
  if constexpr (detail::has_pass<R>(K / 2, kMatrix, kFitting)) {
    return loop_of<NormLoops<R, K / 2, kMatrix, kFitting>, P>();
  } else {
    return nullptr;
  }
}

}  // namespace
}  // namespace gallop::cpu
