// SPDX-License-Identifier: MIT
// The loops of a training step on one thread, over some rows or columns of matrices in row-major
// order. Compiled once for each instruction set, and for doubles.
#pragma once

#include <cstdint>

namespace gallop::gpt::cpu {

template <class T>
struct Kernels {
  // ---- norms; stats: mean and inverse deviation of each row ----
  void (*norm)(const T* x, const T* weight, const T* bias, T* y, T* stats, int64_t rows,
               int64_t width, bool rms, T epsilon);
  // y may be dy, or null; plus may be dx, or null.
  void (*norm_backward)(const T* x, const T* stats, const T* weight, const T* bias, const T* dy,
                        const T* plus, T* dx, T* y, int64_t rows, int64_t width, bool rms);
  // Columns `first` to `last`, over all rows.
  void (*norm_weights)(const T* x, const T* stats, const T* dy, T* dweight, T* dbias, int64_t rows,
                       int64_t width, int64_t first, int64_t last, bool rms, bool add);
  void (*column_sums)(const T* x, T* sums, int64_t rows, int64_t width, int64_t first, int64_t last,
                      bool add);
  // ---- element by element ----
  void (*add)(const T* x, const T* y, T* sum, int64_t n);
  void (*add_rows)(const T* row, T* x, int64_t rows, int64_t width);  // row to each of x
  void (*gelu)(const T* f, T* h, int64_t n);
  void (*gelu_backward)(T* f, const T* dh, T* h, int64_t n);  // h may be dh
  void (*swiglu)(const T* f, T* h, int64_t rows, int64_t hidden);
  void (*swiglu_backward)(T* f, const T* dh, T* h, int64_t rows, int64_t hidden);
  // Pairs of `heads` x `width` numbers are turned by angles; turns: cos, sin of each pair.
  void (*turn)(T* x, const T* turns, int64_t heads, int64_t width, T direction);
  // ---- softmax ----
  // Rows of scores become probabilities: row i has first + i + 1 of them, the rest up to `width`
  // becomes zero. lse: the logarithm of the sum of exponentials, one a row.
  void (*softmax)(T* scores, int64_t rows, int64_t stride, int64_t first, int64_t width, T scale,
                  T* lse);
  // The same again, from what was found before.
  void (*softmax_again)(T* scores, int64_t rows, int64_t stride, int64_t first, int64_t width,
                        T scale, const T* lse);
  // d becomes p (d - sum p d) scale in each row; delta: sum p d if it is known, else null.
  void (*softmax_backward)(const T* p, T* d, int64_t rows, int64_t stride, int64_t width, T scale,
                           const T* delta);
  T (*dot)(const T* x, const T* y, int64_t n);
  // -log softmax at the target; logits become (softmax - one at the target) x factor if asked for.
  T (*cross_entropy)(T* logits, int64_t width, int64_t target, T factor, bool gradient);
};

// For the instruction set in use.
template <class T>
const Kernels<T>& kernels();

}  // namespace gallop::gpt::cpu
