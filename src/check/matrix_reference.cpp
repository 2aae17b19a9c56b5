// SPDX-License-Identifier: MIT
#include "check/matrix_reference.h"

#include <algorithm>
#include <numeric>

#include "blas/plain.h"

namespace gallop::check {

PlainLinear::PlainLinear(const View& view, Bases change, std::vector<Numbers>& planes,
                         const std::vector<Numbers>& rows)
    : LinearOnHost(change),
      view_(view),
      planes_(planes),
      row_numbers_(rows),
      side_(std::min(view.rows, view.columns)) {
  for (auto& s : squares_) {
    s.assign(static_cast<size_t>(view.batches), Numbers(static_cast<size_t>(side_ * side_)));
  }
}

double* PlainLinear::matrix(int plane, size_t m) const {
  return planes_[static_cast<size_t>(plane)].data() +
         static_cast<long long>(m) * view_.rows * view_.columns;
}

// out = alpha X X^T + beta out, or X^T X.
void PlainLinear::gram_of(const double* x, bool of_rows, double alpha, double beta,
                          double* out) const {
  const long long columns = view_.columns, n = of_rows ? view_.rows : columns;
  blas::plain::gemm(n, n, of_rows ? columns : view_.rows, alpha, {x, columns, !of_rows},
                    {x, columns, of_rows}, beta, out, n);
}

void PlainLinear::scale_rows(int plane, int value) {
  Numbers& x = planes_[static_cast<size_t>(plane)];
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] *= row_numbers_[static_cast<size_t>(value)][i / static_cast<size_t>(view_.columns)];
  }
}

void PlainLinear::gram(Square s, int plane) {
  for (size_t m = 0; m < squares_[s].size(); ++m) {
    gram_of(matrix(plane, m), view_.rows <= view_.columns, 1, 0, squares_[s][m].data());
  }
}

void PlainLinear::polynomial(Square s, double b, double c, Square from) {
  for (size_t m = 0; m < squares_[s].size(); ++m) {
    const Numbers a = squares_[from][m];
    squares_[s][m] = a;
    blas::plain::gemm(side_, side_, side_, c, {a.data(), side_}, {a.data(), side_}, b,
                      squares_[s][m].data(), side_);
  }
}

void PlainLinear::apply(int plane, double factor, Square s) {
  const long long rows = view_.rows, columns = view_.columns;
  for (size_t m = 0; m < squares_[s].size(); ++m) {
    double* x = matrix(plane, m);
    const Numbers before(x, x + rows * columns);
    const blas::Factor<double> square{squares_[s][m].data(), side_}, old{before.data(), columns};
    const bool left = rows <= columns;
    blas::plain::gemm(rows, columns, side_, 1.0, left ? square : old, left ? old : square, factor,
                      x, columns);
  }
}

template <class F>
void PlainLinear::for_sides(Sides g, Sides b, F f) {
  for (bool left : {true, false}) {
    Numbers& gs = planes_[static_cast<size_t>(left ? g.left : g.right)];
    Numbers& bs = planes_[static_cast<size_t>(left ? b.left : b.right)];
    const long long n = left ? view_.rows : view_.columns;
    for (long long m = 0; m < view_.batches && !gs.empty(); ++m) {
      f(gs.data() + m * n * n, bs.data() + m * n * n, m * view_.rows * view_.columns, n, left);
    }
  }
}

void PlainLinear::add_grams(Sides g, int plane, double weight) {
  for_sides(g, g, [&](double* square, double*, long long first, long long, bool left) {
    const double* x = planes_[static_cast<size_t>(plane)].data() + first;
    gram_of(x, left, weight, 1 - weight, square);
  });
}

void PlainLinear::eigenbases(Sides b, Sides g) {
  for_sides(g, b, [](const double* square, double* basis, long long, long long n, bool) {
    std::copy_n(square, n * n, basis);
    blas::plain::eigenvectors(n, basis);
  });
}

void PlainLinear::refine_bases(Sides b, Sides g, int plane) {
  for_sides(g, b,
            [&](const double* square, double* basis, long long first, long long n, bool left) {
              Numbers product(static_cast<size_t>(n * n)), value(static_cast<size_t>(n));
              blas::plain::gemm(n, n, n, 1.0, {basis, n}, {square, n}, 0.0, product.data(), n);
              std::vector<long long> order(static_cast<size_t>(n));
              std::iota(order.begin(), order.end(), 0LL);
              for (long long i = 0; i < n; ++i) {
                for (long long l = 0; l < n; ++l) {
                  value[static_cast<size_t>(i)] +=
                      basis[i * n + l] * product[static_cast<size_t>(i * n + l)];
                }
              }
              std::stable_sort(order.begin(), order.end(), [&](long long i, long long j) {
                return value[static_cast<size_t>(i)] > value[static_cast<size_t>(j)];
              });
              double* x = planes_[static_cast<size_t>(plane)].data() + first;
              const Numbers before(x, x + view_.rows * view_.columns);
              for (long long i = 0; i < n; ++i) {
                const long long from = order[static_cast<size_t>(i)];
                std::copy_n(product.data() + from * n, n, basis + i * n);
                for (long long l = 0; l < (left ? view_.columns : view_.rows); ++l) {
                  const auto at = [&](long long k) {
                    return left ? k * view_.columns + l : l * view_.columns + k;
                  };
                  x[at(i)] = before[static_cast<size_t>(at(from))];
                }
              }
              blas::plain::orthonormal_rows(n, basis);
            });
}

void PlainLinear::rotate(int plane, Sides b, bool back) {
  for_sides(b, b, [&](const double* basis, double*, long long first, long long n, bool left) {
    double* x = planes_[static_cast<size_t>(plane)].data() + first;
    const long long rows = view_.rows, columns = view_.columns;
    const Numbers before(x, x + rows * columns);
    if (left) {
      blas::plain::gemm(rows, columns, n, 1.0, {basis, n, back}, {before.data(), columns}, 0.0, x,
                        columns);
    } else {
      blas::plain::gemm(rows, columns, n, 1.0, {before.data(), columns}, {basis, n, !back}, 0.0, x,
                        columns);
    }
  });
}

}  // namespace gallop::check
