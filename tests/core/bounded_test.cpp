// SPDX-License-Identifier: MIT
// The same expression in float and in Bounded: the float must lie within the bound.
#include "core/bounded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace gallop {
namespace {

// The reference itself rounds, in double.
constexpr double kSlack = 1 + 1e-6;
constexpr double kRoundoff = 0x1p-24;

// One value three ways: as a kernel computes it, as the reference does, and how it came about.
struct Value {
  float rounded;
  Bounded bounded;
  std::string text;
};

// Error over bound; 0 where the reference claims nothing.
double ratio(const Value& v) {
  if (!std::isfinite(v.bounded.value) || !std::isfinite(v.bounded.error)) return 0;
  const double error = std::abs(static_cast<double>(v.rounded) - v.bounded.value);
  const double bound = kSlack * kRoundoff * v.bounded.error + 0x1p-149;
  return std::isnan(error) ? kInfinity : error / bound;
}

Value exact(float x) { return {x, Bounded::exact(x), std::to_string(x)}; }
// A coefficient: double in the reference, rounded once in the kernel.
Value coefficient(double x) { return {static_cast<float>(x), Bounded(x), std::to_string(x)}; }

#define BINARY(name, expression)                                    \
  Value name(const Value& x, const Value& y) {                      \
    const auto f = [](auto a, auto b) { return expression; };       \
    return {f(x.rounded, y.rounded), f(x.bounded, y.bounded),       \
            std::string(#name "(") + x.text + ", " + y.text + ")"}; \
  }
#define UNARY(name, expression)                                    \
  Value name(const Value& x) {                                     \
    const auto f = [](auto a) { return expression; };              \
    return {f(x.rounded), f(x.bounded), #name "(" + x.text + ")"}; \
  }
BINARY(add, a + b)
BINARY(subtract, a - b)
BINARY(multiply, (a) * (b))
BINARY(divide, a / b)
BINARY(larger, gallop::max(a, b))
BINARY(smaller, gallop::min(a, b))
UNARY(root, gallop::sqrt(a))
UNARY(magnitude, gallop::abs(a))
UNARY(negate, -a)
UNARY(square, (a) * (a))
#undef BINARY
#undef UNARY

// Fused and not: kernels do either.
Value multiply_add(const Value& a, const Value& b, const Value& c, bool fused) {
  const float product = a.rounded * b.rounded;
  return {fused ? std::fma(a.rounded, b.rounded, c.rounded) : product + c.rounded,
          fma(a.bounded, b.bounded, c.bounded),
          "fma(" + a.text + ", " + b.text + ", " + c.text + ")"};
}

class BoundedError : public testing::Test {
 protected:
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  double spread() { return (below(2) ? -1 : 1) * std::exp2(uniform(-4, 4)); }
  Value leaf() {
    return below(3) == 0 ? coefficient(spread()) : exact(static_cast<float>(spread()));
  }

  // Products of leaves that nearly cancel: a small value with a large relative error.
  Value difference() {
    const Value a = leaf(), b = leaf(), product = multiply(a, b);
    const double near = product.bounded.value * (1 + uniform(-1, 1) * std::exp2(uniform(-26, -18)));
    return subtract(product, exact(static_cast<float>(near)));
  }

  Value tree(int depth, const std::vector<Value>& leaves) {
    if (depth == 0) return leaves[static_cast<size_t>(below(static_cast<int>(leaves.size())))];
    const auto next = [&] { return tree(depth - 1, leaves); };
    switch (below(11)) {
      case 0:
        return add(next(), next());
      case 1:
        return subtract(next(), next());
      case 2:
        return multiply(next(), next());
      case 3:
        return divide(next(), next());
      case 4:
        return larger(next(), next());
      case 5:
        return smaller(next(), next());
      case 6:
        return root(magnitude(next()));
      case 7:
        return negate(next());
      case 8:
        return multiply_add(next(), next(), next(), below(2) != 0);
      case 9:
        return square(next());
      default:
        return magnitude(next());
    }
  }

 private:
  std::mt19937_64 random_{1};
};

TEST_F(BoundedError, HoldsForEachOperationOnExactValuesAndCoefficients) {
  for (int i = 0; i < 100000; ++i) {
    const Value a = leaf(), b = leaf(), c = leaf();
    for (const Value& v : {add(a, b), subtract(a, b), multiply(a, b), divide(a, b), larger(a, b),
                           smaller(a, b), root(magnitude(a)), magnitude(a), negate(a),
                           multiply_add(a, b, c, true), multiply_add(a, b, c, false)}) {
      ASSERT_LE(ratio(v), 1) << v.text;
    }
  }
}

TEST_F(BoundedError, HoldsForASumOfManyTerms) {
  for (int i = 0; i < 1000; ++i) {
    Value sum = leaf();
    for (int j = 0; j < 100; ++j) sum = add(sum, multiply(leaf(), leaf()));
    ASSERT_LE(ratio(sum), 1);
  }
}

TEST_F(BoundedError, HoldsForAMovingAverageOverManySteps) {
  const Value beta = coefficient(0.999), weight = coefficient(1 - 0.999);
  for (bool fused : {false, true}) {
    Value average = exact(0);
    for (int step = 0; step < 20000; ++step) {
      const Value g = exact(static_cast<float>(spread()));
      average = multiply_add(beta, average, multiply(weight, square(g)), fused);
      average.text.clear();
      ASSERT_LE(ratio(average), 1) << step;
    }
  }
}

TEST_F(BoundedError, HoldsForCancellationThenSquaring) {
  for (int i = 0; i < 100000; ++i) {
    const Value v = square(difference());
    ASSERT_LE(ratio(v), 1) << v.text;
    ASSERT_LE(ratio(square(v)), 1) << v.text;
  }
}

TEST_F(BoundedError, HoldsForAFullCancellationThenSquaring) {
  const Value one = exact(1), tenth = exact(0.1f);
  const Value rest = subtract(subtract(add(one, tenth), one), tenth);
  ASSERT_EQ(rest.bounded.value, 0);
  ASSERT_NE(rest.rounded, 0);
  EXPECT_LE(ratio(rest), 1);
  EXPECT_LE(ratio(square(rest)), 1);
  EXPECT_LE(ratio(root(square(rest))), 1);
}

TEST_F(BoundedError, HoldsForArgumentsOfWhichOnlyTheFirstDigitIsKnown) {
  for (double error = 0.01; error < 2; error += 0.01) {
    const Bounded unsure(1, error / kRoundoff);
    for (double off = -error; off <= error; off += error / 8) {
      const float actual = static_cast<float>(1 + off);
      const Value v{actual, unsure, "1+-" + std::to_string(error)};
      EXPECT_LE(ratio(square(v)), 1) << v.text << " off by " << off;
      EXPECT_LE(ratio(divide(exact(3), v)), 1) << v.text << " off by " << off;
      if (actual < 0) continue;
      EXPECT_LE(ratio(root(v)), 1) << v.text << " off by " << off;
    }
  }
}

TEST_F(BoundedError, HoldsForRootsOfNearZeroDifferences) {
  for (int i = 0; i < 200000; ++i) {
    Value d = difference();
    if (d.bounded.value < 0) d = negate(d);
    d.rounded = std::max(d.rounded, 0.0f);  // a kernel's NaN is judged by other means
    const Value v = root(d);
    ASSERT_LE(ratio(v), 1) << v.text << " relative error of the argument "
                           << d.bounded.error * kRoundoff / d.bounded.value;
  }
}

TEST_F(BoundedError, HoldsForDivisionByNearZeroDifferences) {
  for (int i = 0; i < 200000; ++i) {
    const Value d = difference(), v = divide(leaf(), d);
    ASSERT_LE(ratio(v), 1) << v.text << " relative error of the divisor "
                           << d.bounded.error * kRoundoff / std::abs(d.bounded.value);
  }
}

TEST_F(BoundedError, HoldsForRandomExpressions) {
  int judged = 0;
  for (int i = 0; i < 300000; ++i) {
    // Few leaves, so that the same value meets itself and cancels.
    const Value v = tree(1 + below(3), {leaf(), leaf(), leaf(), exact(1)});
    const double size = std::abs(v.bounded.value);
    if (!(size > 1e-12 && size < 1e30)) continue;  // no claim is made about underflow
    judged += std::isfinite(v.bounded.error);
    ASSERT_LE(ratio(v), 1) << v.text;
  }
  EXPECT_GT(judged, 150000);
}

TEST_F(BoundedError, IsNotSoWideThatItProvesNothing) {
  // One operation on exact values rounds once.
  for (int i = 0; i < 10000; ++i) {
    const Value a = exact(static_cast<float>(spread())), b = exact(static_cast<float>(spread()));
    for (const Value& v : {add(a, b), multiply(a, b), divide(a, b), root(magnitude(a))}) {
      ASSERT_LE(v.bounded.error, std::abs(v.bounded.value)) << v.text;
    }
  }
}

TEST_F(BoundedError, IsInfiniteWhereADivisorMayBeZero) {
  const Value rest = subtract(multiply(exact(3.1f), exact(1.7f)), exact(3.1f * 1.7f));
  EXPECT_EQ(divide(exact(1), rest).bounded.error, kInfinity);
}

TEST_F(BoundedError, FlagsASignThatAnErrorMayTurn) {
  int unsure = 0, turned = 0;
  for (int i = 0; i < 100000; ++i) {
    const Value d = difference();
    const float in_float = gallop::sign(d.rounded);
    const Bounded in_double = gallop::sign(d.bounded);
    unsure += in_double.error != 0;
    if (in_double.value == in_float) continue;
    ++turned;
    ASSERT_GE(in_double.error * kRoundoff, std::abs(in_double.value - in_float)) << d.text;
  }
  EXPECT_GT(turned, 100);
  EXPECT_LT(unsure, 90000);
}

TEST_F(BoundedError, KnowsTheSignOfExactValues) {
  for (double x : {0.0, 1.0, -1.0, 0x1p-149, -0x1p-149}) {
    EXPECT_EQ(sign(Bounded::exact(x)).error, 0) << x;
    EXPECT_EQ(sign(Bounded::exact(x)).value, x == 0 ? 0 : std::copysign(1, x)) << x;
  }
}

}  // namespace
}  // namespace gallop
