// SPDX-License-Identifier: MIT
#include "bench/products.h"

#include <gtest/gtest.h>

namespace gallop::bench {
namespace {

StepContender of(const std::string& optimizer, const Hyper& hyper = {}) {
  StepContender c;
  c.optimizer = optimizer;
  c.hyper = hyper;
  return c;
}

ShapeList one(std::vector<int64_t> dims, Role role = Role::hidden) {
  return {"one", {{"w", std::move(dims), role}}};
}

TEST(ProductFlops, OfMostRulesAreNone) {
  EXPECT_EQ(product_flops(of("adamw"), one({30, 20})), 0);
  EXPECT_EQ(product_flops(of("adafactor"), one({30, 20})), 0);
}

TEST(ProductFlops, OfMuonAreThreeProductsAStepOfNewtonSchulz) {
  // X X^T and S X: 20 x 20 x 30 terms each; A A: 20 x 20 x 20.
  const double each = 2 * (20 * 20 * 30 + 20 * 20 * 20 + 20 * 30 * 20);
  EXPECT_EQ(product_flops(of("muon"), one({30, 20})), 5 * each);
  EXPECT_EQ(product_flops(of("muon"), one({20, 30})), 5 * each);
  EXPECT_EQ(product_flops(of("muon"), one({4, 20, 30})), 4 * 5 * each);
  EXPECT_EQ(product_flops(of("muon", {{"ns_steps", 2}}), one({20, 30})), 2 * each);
  EXPECT_EQ(product_flops(of("muon"), one({30, 20}, Role::embedding)), 0);
}

TEST(ProductFlops, OfSoapAreGramsAndTurnsOfTheSidesItKeeps) {
  const double left = 2 * 30 * 30 * 20, right = 2 * 20 * 20 * 30;
  EXPECT_EQ(product_flops(of("soap"), one({30, 20})), 3 * (left + right));
  EXPECT_EQ(product_flops(of("soap", {{"max_precond_dim", 25}}), one({30, 20})), 3 * right);
}

}  // namespace
}  // namespace gallop::bench
