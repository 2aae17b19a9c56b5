// SPDX-License-Identifier: MIT
#include "check/matrix_reference.h"

#include <algorithm>

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

}  // namespace gallop::check
