// SPDX-License-Identifier: MIT
#include "check/matrix_reference.h"

#include <algorithm>
#include <numeric>

#include "blas/plain.h"

namespace gallop::check {

PlainLinear::PlainLinear(const View& view, std::vector<Numbers>& planes,
                         const std::vector<Numbers>& rows)
    : view_(view),
      planes_(planes),
      row_numbers_(rows),
      side_(static_cast<size_t>(std::min(view.rows, view.columns))),
      length_(static_cast<size_t>(std::max(view.rows, view.columns))) {
  for (auto& s : squares_) {
    s.assign(static_cast<size_t>(view.batches), Numbers(side_ * side_));
  }
}

std::vector<PlainLinear::Numbers> PlainLinear::short_first(int plane) const {
  std::vector<Numbers> out;
  const double* from = planes_[static_cast<size_t>(plane)].data();
  for (long long b = 0; b < view_.batches; ++b) {
    Numbers& m = out.emplace_back(side_ * length_);
    for (long long r = 0; r < view_.rows; ++r) {
      for (long long c = 0; c < view_.columns; ++c) {
        const auto at = static_cast<size_t>(view_.rows <= view_.columns ? r * view_.columns + c
                                                                        : c * view_.rows + r);
        m[at] = *from++;
      }
    }
  }
  return out;
}

void PlainLinear::scale_rows(int plane, int value) {
  Numbers& x = planes_[static_cast<size_t>(plane)];
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] *= row_numbers_[static_cast<size_t>(value)][i / static_cast<size_t>(view_.columns)];
  }
}

void PlainLinear::gram(Square s, int plane) {
  const std::vector<Numbers> all = short_first(plane);
  for (size_t b = 0; b < all.size(); ++b) {
    for (size_t i = 0; i < side_; ++i) {
      for (size_t j = 0; j < side_; ++j) {
        double sum = 0;
        for (size_t l = 0; l < length_; ++l)
          sum += all[b][i * length_ + l] * all[b][j * length_ + l];
        squares_[s][b][i * side_ + j] = sum;
      }
    }
  }
}

void PlainLinear::polynomial(Square s, double b, double c, Square from) {
  for (size_t m = 0; m < squares_[s].size(); ++m) {
    const Numbers a = squares_[from][m];
    for (size_t i = 0; i < side_; ++i) {
      for (size_t j = 0; j < side_; ++j) {
        double sum = 0;
        for (size_t l = 0; l < side_; ++l) sum += a[i * side_ + l] * a[l * side_ + j];
        squares_[s][m][i * side_ + j] = b * a[i * side_ + j] + c * sum;
      }
    }
  }
}

void PlainLinear::apply(int plane, double factor, Square s) {
  const std::vector<Numbers> all = short_first(plane);
  double* to = planes_[static_cast<size_t>(plane)].data();
  const bool wide = view_.rows <= view_.columns;
  for (size_t b = 0; b < all.size(); ++b) {
    const Numbers &x = all[b], &square = squares_[s][b];
    for (size_t r = 0; r < static_cast<size_t>(view_.rows); ++r) {
      for (size_t c = 0; c < static_cast<size_t>(view_.columns); ++c) {
        const size_t i = wide ? r : c, j = wide ? c : r;
        double sum = factor * x[i * length_ + j];
        for (size_t l = 0; l < side_; ++l) sum += square[i * side_ + l] * x[l * length_ + j];
        *to++ = sum;
      }
    }
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
  for_sides(g, g, [&](double* square, double*, long long first, long long n, bool left) {
    const double* x = planes_[static_cast<size_t>(plane)].data() + first;
    const long long columns = view_.columns, terms = left ? columns : view_.rows;
    const auto at = [&](long long i, long long l) {
      return left ? x[i * columns + l] : x[l * columns + i];
    };
    for (long long i = 0; i < n; ++i) {
      for (long long j = 0; j < n; ++j) {
        double sum = 0;
        for (long long l = 0; l < terms; ++l) sum += at(i, l) * at(j, l);
        square[i * n + j] = (1 - weight) * square[i * n + j] + weight * sum;
      }
    }
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
