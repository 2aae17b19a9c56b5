// SPDX-License-Identifier: MIT
// What a rule with norms declares: several passes over the elements, sums in between.
//
// - sums[]: what a pass adds up, over the tensor, or for every row, or for every column
// - passes[]: what each pass reads and writes
// - view(form) or view(form, hyper): the tensor as matrices, one after the other
// - values: how many numbers between() hands to the later passes
// - pass<P, Matrix>(p, g, s, k, x, sum): one element; x holds those numbers, sum takes the summands
// - between<P>(v, k): after pass P, once per tensor, from sums to numbers (v)
//
// A pass is written like any rule's update. between() is arithmetic on coefficients; its numbers
// are double, or carry a bound in the reference: compare them with is_above(). Rows and columns, as
// numbers or as states, may only change after a pass that sums by row or column.
#pragma once

#include "core/rule.h"

namespace gallop {

enum class Over { tensor, row, column };

struct Sum {
  Over over;        // rows and columns: of matrices only
  unsigned passes;  // bit P: pass P adds it up
};

struct Pass {
  unsigned reads;                  // bit j: state j
  unsigned writes = 0;             // as an Entry's
  bool grad = true, param = true;  // whether these are read
  const char* when = nullptr;      // left out if this knob is zero
  const char* unless = nullptr;    // left out if this knob is not
  Only only = Only::any;           // left out for other tensors
  // Left out for tensors whose number of this index is zero, or is not, after an earlier pass.
  int if_set = -1, if_zero = -1;
};

// Whether a tensor's numbers let the pass be run.
template <class F>
GALLOP_FN bool is_wanted(const Pass& p, F number) {
  return (p.if_set < 0 || number(p.if_set) != 0) && (p.if_zero < 0 || number(p.if_zero) == 0);
}

// What a rule is told of a tensor. inner: its role is not that of an embedding, a head, a norm or a
// bias.
struct Form {
  const long* shape;
  int dims;
  long long n;
  bool inner;
};

// A tensor as `batches` matrices of rows x columns, one after the other in memory. Rules that treat
// vectors in another way than matrices are told which it is.
struct View {
  long long batches, rows, columns;
  bool matrix;
  bool left = true, right = true;  // which sides have states per pair of rows, of columns
  const char* misfit = nullptr;    // why the rule is not for such a tensor
};

// How many numbers the passes are given: of the tensor, of each row, of each column.
struct Values {
  int tensor, row, column;
};

namespace detail {
inline constexpr int kMaxStates = 8;
inline constexpr int kMaxTensorValues = 4, kMaxRowValues = 2, kMaxColumnValues = 2;
inline constexpr int kMaxPasses = 6, kMaxSums = 4;
}  // namespace detail

// The numbers for one element.
template <class T>
struct Seen {
  T tensor[detail::kMaxTensorValues], row[detail::kMaxRowValues], column[detail::kMaxColumnValues];
};

GALLOP_FN bool is_above(double a, double b) { return a > b; }

// What between() works on, one tensor at a time, in numbers N. Rows and columns are counted through
// all matrices of the tensor; those of matrix b are [b * rows(), ...) and [b * columns(), ...).
template <class N>
struct Vectors {
  using Number = N;
  View view;
  const N *totals, *row_sums[detail::kMaxSums], *column_sums[detail::kMaxSums];
  N* states[detail::kMaxStates];  // those per row or column
  N *tensor_values, *row_values[detail::kMaxRowValues], *column_values[detail::kMaxColumnValues];

  bool matrix() const { return view.matrix; }
  long long rows() const { return view.rows; }
  long long columns() const { return view.columns; }
  double elements() const {
    return static_cast<double>(view.batches) * static_cast<double>(view.rows) *
           static_cast<double>(view.columns);
  }
  N total(int q) const { return totals[q]; }
  N row_sum(int q, long long r) const { return row_sums[q][r]; }
  N column_sum(int q, long long c) const { return column_sums[q][c]; }
  // A row's or column's state: what it was in the step before, then what it becomes.
  N state_before(int j, long long at) const { return states[j][at]; }
  void state(int j, long long at, N x) { states[j][at] = x; }
  N state(int j, long long at) const { return states[j][at]; }
  N tensor(int i) const { return tensor_values[i]; }
  void tensor(int i, N x) { tensor_values[i] = x; }
  void row(int i, long long r, N x) { row_values[i][r] = x; }
  void column(int i, long long c, N x) { column_values[i][c] = x; }

  // f(b) for every matrix; within it, the functions below.
  template <class F>
  void for_batches(F f) {
    for (long long b = 0; b < view.batches; ++b) f(b);
  }
  template <class F>
  void for_rows(long long b, F f) {
    for (long long r = b * rows(); r < (b + 1) * rows(); ++r) f(r);
  }
  template <class F>
  void for_columns(long long b, F f) {
    for (long long c = b * columns(); c < (b + 1) * columns(); ++c) f(c);
  }
  template <class F>
  N sum_rows(long long b, F f) {
    N sum = 0;
    for_rows(b, [&](long long r) { sum = sum + f(r); });
    return sum;
  }
  template <class F>
  N max_rows(long long b, F f) {
    N most = f(b * rows());
    for_rows(b, [&](long long r) { most = max(most, f(r)); });
    return most;
  }
};

}  // namespace gallop
