// SPDX-License-Identifier: MIT
// A rule's stages over the matrices of one tensor, in double, by plain loops.
#pragma once

#include <cstddef>
#include <vector>

#include "core/matrices.h"

namespace gallop::check {

class PlainLinear final : public Linear {
 public:
  using Numbers = std::vector<double>;
  // planes[j]: state j, one value per element; rows[v]: number v of every row.
  PlainLinear(const View& view, std::vector<Numbers>& planes, const std::vector<Numbers>& rows);

  void scale_rows(int plane, int value) override;
  void gram(Square s, int plane) override;
  void polynomial(Square s, double b, double c, Square a) override;
  void apply(int plane, double x, Square s) override;

 private:
  // The whole plane's matrices, each with its shorter side first.
  std::vector<Numbers> short_first(int plane) const;

  View view_;
  std::vector<Numbers>& planes_;
  const std::vector<Numbers>& row_numbers_;
  size_t side_, length_;
  std::vector<Numbers> squares_[2];
};

}  // namespace gallop::check
