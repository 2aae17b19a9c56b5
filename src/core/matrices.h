// SPDX-License-Identifier: MIT
// What a rule over matrices declares besides its passes (see core/norms.h):
//
// - states[] marked scratch: arrays that live for one step, which passes fill and read
// - stages: bit P: after pass P, and what is made of its sums, stage(P, on, h) is called
// - bases(h, clock), of a rule that keeps some: what a step does with them
// - needs_matrix: the rule is pointless, and refused, where no tensor is a matrix
//
// A stage says what is done with all matrices of one shape; `on` does it, on any device. It is the
// same in every step: on GPUs, the host does not know which step it is. Planes are named by the
// index of their state, which is scratch or exact.
#pragma once

#include "core/norms.h"

namespace gallop {

enum class Bases { keep, make, refine };

class Linear {
 public:
  virtual ~Linear() = default;

  // Squares over the shorter side of a plane's matrices, symmetric, forgotten after the stage.
  enum Square { square1, square2 };

  // States per pair of rows and per pair of columns; a side that has none is left as it is.
  struct Sides {
    int left, right;
  };

  // X_r = X_r * (number `value` of row r)
  virtual void scale_rows(int plane, int value) = 0;
  // S = X X^T, or X^T X where that is smaller
  virtual void gram(Square s, int plane) = 0;
  // S = b A + c A A
  virtual void polynomial(Square s, double b, double c, Square a) = 0;
  // X = x X + S X, or x X + X S
  virtual void apply(int plane, double x, Square s) = 0;

  // G = (1 - weight) G + weight X X^T; on the right, X^T X
  virtual void add_grams(Sides g, int plane, double weight) = 0;
  // X = L X R^T; back: X = L^T X R
  virtual void rotate(int plane, Sides b, bool back) = 0;
  // make: B = the eigenvectors of G, one a row, the largest eigenvalue's first
  // refine: one step of orthogonal iteration: B's rows sorted by b G b^T, the largest first, and
  // the rows and columns of the plane `sorted` with them; then B = orthonormal rows of B G, and the
  // plane `turned` from the old bases to the new ones
  virtual void change_bases(Sides b, Sides g, int turned, int sorted) = 0;
};

// Where it is known what becomes of the bases.
class LinearOnHost : public Linear {
 public:
  explicit LinearOnHost(Bases change) : change_(change) {}
  void change_bases(Sides b, Sides g, int turned, int sorted) final {
    if (change_ == Bases::make) eigenbases(b, g);
    if (change_ != Bases::refine) return;
    rotate(turned, b, true);
    refine_bases(b, g, sorted);
    rotate(turned, b, false);
  }

 private:
  virtual void eigenbases(Sides b, Sides g) = 0;
  virtual void refine_bases(Sides b, Sides g, int sorted) = 0;
  Bases change_;
};

}  // namespace gallop
