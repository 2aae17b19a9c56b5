// SPDX-License-Identifier: MIT
// Whatever library is found must agree with plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "blas/blas.h"
#include "blas/plain.h"

namespace gallop::blas {
namespace {

template <class T>
std::vector<T> random_numbers(Index n, unsigned seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<double> normal;
  std::vector<T> out(static_cast<size_t>(n));
  for (T& x : out) x = static_cast<T>(normal(bits));
  return out;
}

template <class T>
std::vector<T> symmetric(Index n, unsigned seed) {
  const std::vector<T> half = random_numbers<T>(n * n, seed);
  std::vector<T> out(half.size());
  plain::gemm(n, n, n, T(1), {half.data(), n}, {half.data(), n, true}, T(0), out.data(), n);
  return out;
}

template <class T>
class Blas : public testing::Test {
 protected:
  static constexpr double kBound = sizeof(T) == 8 ? 1e-12 : 1e-3;
  const OneThreadEach serial_;
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Blas, Types);

TYPED_TEST(Blas, ProductsAreThoseOfPlainLoops) {
  using T = TypeParam;
  const Index m = 7, n = 13, k = 29, room = 40;  // rows lie further apart than they are long
  const auto a = random_numbers<T>(room * room, 1), b = random_numbers<T>(room * room, 2);
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      for (T beta : {T(0), T(-2)}) {
        auto ours = random_numbers<T>(room * room, 3), want = ours;
        gemm(m, n, k, T(0.5), {a.data(), room, ta}, {b.data(), room, tb}, beta, ours.data(), room);
        plain::gemm(m, n, k, T(0.5), {a.data(), room, ta}, {b.data(), room, tb}, beta, want.data(),
                    room);
        for (size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], want[i], this->kBound) << i;
      }
    }
  }
}

// beta 0 means that what was there does not count, NaN or not.
TYPED_TEST(Blas, WhatIsOverwrittenDoesNotCount) {
  using T = TypeParam;
  const std::vector<T> one = {1};
  std::vector<T> out = {static_cast<T>(NAN)};
  gemm(1, 1, 1, T(3), {one.data(), 1}, {one.data(), 1}, T(0), out.data(), 1);
  EXPECT_EQ(out[0], 3);
  out[0] = static_cast<T>(NAN);
  plain::gemm(1, 1, 1, T(3), {one.data(), 1}, {one.data(), 1}, T(0), out.data(), 1);
  EXPECT_EQ(out[0], 3);
}

template <class T>
void expect_orthonormal(const std::vector<T>& rows, Index n, double bound) {
  std::vector<T> gram(rows.size());
  plain::gemm(n, n, n, T(1), {rows.data(), n}, {rows.data(), n, true}, T(0), gram.data(), n);
  for (Index i = 0; i < n * n; ++i) {
    ASSERT_NEAR(gram[static_cast<size_t>(i)], i % (n + 1) == 0 ? 1 : 0, bound) << i;
  }
}

TYPED_TEST(Blas, EigenvectorsComeByRowTheLargestFirst) {
  using T = TypeParam;
  for (Index n : {1, 2, 23, 60}) {
    const std::vector<T> a = symmetric<T>(n, 5);
    for (bool by_library : {true, false}) {
      std::vector<T> v = a;
      ASSERT_TRUE(by_library ? eigenvectors(n, v.data()) : plain::eigenvectors(n, v.data()));
      expect_orthonormal(v, n, this->kBound);
      std::vector<T> turned(a.size()), diagonal(a.size());
      plain::gemm(n, n, n, T(1), {v.data(), n}, {a.data(), n}, T(0), turned.data(), n);
      plain::gemm(n, n, n, T(1), {turned.data(), n}, {v.data(), n, true}, T(0), diagonal.data(), n);
      for (Index i = 0; i < n; ++i) {
        for (Index j = 0; j < n; ++j) {
          if (i == j) continue;
          ASSERT_NEAR(diagonal[static_cast<size_t>(i * n + j)], 0, 100 * this->kBound);
        }
        if (i == 0) continue;
        EXPECT_LE(diagonal[static_cast<size_t>(i * (n + 1))],
                  diagonal[static_cast<size_t>((i - 1) * (n + 1))] + this->kBound);
      }
    }
  }
}

TYPED_TEST(Blas, OrthonormalRowsSpanWhatTheFirstOnesDid) {
  using T = TypeParam;
  const Index n = 17;
  const std::vector<T> a = random_numbers<T>(n * n, 7);
  std::vector<T> ours = a, want = a, work(static_cast<size_t>(orthonormal_work(n)));
  orthonormal_rows(n, ours.data(), work.data());
  plain::orthonormal_rows(n, want.data());
  expect_orthonormal(ours, n, this->kBound);
  for (Index r = 0; r < n; ++r) {  // the same but for signs
    const T* row = ours.data() + r * n;
    const T dot = std::inner_product(row, row + n, want.data() + r * n, T(0));
    EXPECT_NEAR(std::abs(dot), 1, this->kBound) << r;
  }
}

TYPED_TEST(Blas, ThreadsMayCallSideBySide) {
  using T = TypeParam;
  const Index n = 96;
  const auto a = random_numbers<T>(n * n, 1), b = random_numbers<T>(n * n, 2);
  std::vector<std::vector<T>> out(4, std::vector<T>(static_cast<size_t>(n * n)));
  std::vector<std::thread> threads;
  for (auto& c : out) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const OneThreadEach inner;
        gemm(n, n, n, T(1), {a.data(), n}, {b.data(), n}, T(0), c.data(), n);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const auto& c : out) EXPECT_EQ(c, out[0]);
}

TEST(BlasDescription, SaysWhatIsUsed) { EXPECT_FALSE(describe().empty()); }

}  // namespace
}  // namespace gallop::blas
