// SPDX-License-Identifier: MIT
// A rule's stages over the matrices of one tensor, in double, by plain loops.
#pragma once

#include <cstddef>
#include <vector>

#include "core/matrices.h"

namespace gallop::check {

class PlainLinear final : public LinearOnHost {
 public:
  using Numbers = std::vector<double>;
  // planes[j]: state j, one value per element, or per pair of rows or columns; empty if it is not
  // there. rows[v]: number v of every row.
  PlainLinear(const View& view, Bases change, std::vector<Numbers>& planes,
              const std::vector<Numbers>& rows);

  void scale_rows(int plane, int value) override;
  void gram(Square s, int plane) override;
  void polynomial(Square s, double b, double c, Square a) override;
  void apply(int plane, double x, Square s) override;
  void add_grams(Sides g, int plane, double weight) override;
  void rotate(int plane, Sides b, bool back) override;

 private:
  void eigenbases(Sides b, Sides g) override;
  void refine_bases(Sides b, Sides g, int plane) override;
  double* matrix(int plane, size_t m) const;
  void gram_of(const double* x, bool of_rows, double alpha, double beta, double* out) const;
  // f(square of g, square of b, first element of the plane's matrix, length of the side, left)
  template <class F>
  void for_sides(Sides g, Sides b, F f);

  View view_;
  std::vector<Numbers>& planes_;
  const std::vector<Numbers>& row_numbers_;
  long long side_;  // the shorter one
  std::vector<Numbers> squares_[2];
};

}  // namespace gallop::check
