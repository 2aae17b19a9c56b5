// SPDX-License-Identifier: MIT
// Against products in double of factors that the test rounds itself.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gallop/error.h"
#include "gpt/cpu/bf16_products.h"

namespace gallop::gpt::cpu {
namespace {

using blas::Index;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kUntouched = -12345;

float to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), odd = bits >> 16 & 1;
  return std::bit_cast<float>((bits + 0x7fff + odd) & 0xffff0000);
}

// As it lies in memory: rows further apart than they are long, and not aligned.
struct Matrix {
  Index rows, columns;
  bool transposed = false;
  Index stride = (transposed ? rows : columns) + 3;
  std::vector<float> values =
      std::vector<float>(static_cast<size_t>((transposed ? columns : rows) * stride + 1), kNaN);

  float* data() { return values.data() + 1; }
  float& at(Index r, Index c) { return data()[transposed ? c * stride + r : r * stride + c]; }
  blas::Factor<float> factor() { return {data(), stride, transposed}; }

  template <class F>
  Matrix& fill(F f) {
    for (Index r = 0; r < rows; ++r) {
      for (Index c = 0; c < columns; ++c) at(r, c) = f();
    }
    return *this;
  }
};

struct Shape {
  Index m, n, k;
};

// Around registers, panels, tiles and blocks.
const Shape kShapes[] = {{1, 1, 1},    {1, 17, 2},   {12, 32, 32},  {13, 33, 31}, {7, 129, 65},
                         {49, 31, 33}, {5, 6, 1025}, {11, 3, 2100}, {1550, 3, 5}, {3, 3105, 3},
                         {61, 70, 96}, {97, 16, 7},  {25, 257, 64}};

class Bf16Products : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_bf16_products()) GTEST_SKIP() << "NOT TESTED: no AVX512-BF16 here";
  }

  Matrix normal(Index rows, Index columns, bool transposed = false) {
    std::normal_distribution<float> number;
    return Matrix{rows, columns, transposed}.fill([&] { return number(random_); });
  }
  Matrix integers(Index rows, Index columns, bool transposed = false) {
    std::uniform_int_distribution<int> number(-8, 8);
    return Matrix{rows, columns, transposed}.fill(
        [&] { return static_cast<float>(number(random_)); });
  }

  static Matrix multiply(int threads, Matrix& a, Matrix& b, float beta, Matrix c) {
    product_bf16(threads, a.rows, b.columns, a.columns, a.factor(), b.factor(), beta, c.data(),
                 c.stride);
    return c;
  }

  // Within `roundings` of 2^-24 of what the terms add up to without their signs.
  static void expect_product(Matrix& a, Matrix& b, float beta, Matrix& before, Matrix& c,
                             double roundings) {
    for (Index i = 0; i < c.rows; ++i) {
      for (Index j = 0; j < c.columns; ++j) {
        double sum = beta == 0 ? 0 : double{beta} * before.at(i, j), size = std::abs(sum);
        for (Index p = 0; p < a.columns; ++p) {
          const double term = double{to_bf16(a.at(i, p))} * to_bf16(b.at(p, j));
          sum += term;
          size += std::abs(term);
        }
        ASSERT_LE(std::abs(c.at(i, j) - sum), roundings * 0x1p-24 * size) << i << ", " << j;
      }
    }
    // What lies between the rows is nobody's.
    for (Index r = 0; r < c.rows; ++r) {
      for (Index past = c.columns; past < c.stride; ++past) {
        ASSERT_TRUE(std::isnan(c.data()[r * c.stride + past])) << r;
      }
    }
  }

  template <class F>
  static void for_each_case(F f) {
    for (const Shape& s : kShapes) {
      for (bool ta : {false, true}) {
        for (bool tb : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << s.m << " x " << s.n << " x " << s.k << " " << ta << tb);
          f(s, ta, tb);
        }
      }
    }
  }

  std::mt19937 random_{1};
};

TEST_F(Bf16Products, AreThoseOfRoundedFactors) {
  for_each_case([&](const Shape& s, bool ta, bool tb) {
    Matrix a = normal(s.m, s.k, ta), b = normal(s.k, s.n, tb);
    for (float beta : {0.f, 1.f, 0.5f}) {
      Matrix before = normal(s.m, s.n), c = multiply(2, a, b, beta, before);
      expect_product(a, b, beta, before, c, static_cast<double>(s.k) + 2);
    }
  });
}

TEST_F(Bf16Products, OfSmallIntegersAreExact) {
  for_each_case([&](const Shape& s, bool ta, bool tb) {
    Matrix a = integers(s.m, s.k, ta), b = integers(s.k, s.n, tb);
    Matrix before = integers(s.m, s.n), c = multiply(3, a, b, 1, before);
    expect_product(a, b, 1, before, c, 0);
  });
}

TEST_F(Bf16Products, RoundFactorsToNearestEven) {
  Matrix one = Matrix{1, 1}.fill([] { return 1.f; });
  const auto rounded = [&](float x, bool left) {
    Matrix other = Matrix{1, 1}.fill([&] { return x; });
    return multiply(1, left ? other : one, left ? one : other, 0, Matrix{1, 1}).at(0, 0);
  };
  for (bool left : {false, true}) {
    EXPECT_EQ(rounded(1 + 0x1p-8f, left), 1);
    EXPECT_EQ(rounded(1 + 0x3p-8f, left), 1 + 0x1p-6f);
    EXPECT_EQ(rounded(1 + 0x1p-8f + 0x1p-23f, left), 1 + 0x1p-7f);
    EXPECT_EQ(rounded(-1 - 0x1p-8f + 0x1p-23f, left), -1);
    EXPECT_EQ(rounded(3.3895314e38f, left), 3.3895314e38f);  // the largest of bf16
    EXPECT_EQ(rounded(std::numeric_limits<float>::max(), left), kInfinity);
    EXPECT_EQ(rounded(-kInfinity, left), -kInfinity);
    EXPECT_TRUE(std::isnan(rounded(kNaN, left)));
    EXPECT_EQ(rounded(1e-39f, left), 0);  // subnormal
  }
}

TEST_F(Bf16Products, HaveTheSameBitsOnAnyNumberOfThreads) {
  for (const Shape& s : {Shape{61, 300, 70}, Shape{200, 33, 1100}}) {
    Matrix a = normal(s.m, s.k), b = normal(s.k, s.n, true), before = normal(s.m, s.n);
    Matrix first = multiply(1, a, b, 0.5f, before);
    const auto expect_same = [&](Matrix c) {
      for (Index i = 0; i < s.m; ++i) {
        for (Index j = 0; j < s.n; ++j) {
          ASSERT_EQ(std::bit_cast<uint32_t>(c.at(i, j)), std::bit_cast<uint32_t>(first.at(i, j)));
        }
      }
    };
    for (int threads : {2, 3}) expect_same(multiply(threads, a, b, 0.5f, before));
    // Callers side by side each have a room of their own.
    std::vector<std::thread> callers;
    for (int i = 0; i < 3; ++i) {
      callers.emplace_back([&] {
        for (int round = 0; round < 50; ++round) expect_same(multiply(2, a, b, 0.5f, before));
      });
    }
    for (std::thread& t : callers) t.join();
  }
}

// Neither tiles nor neighbours show in an element.
TEST_F(Bf16Products, OfAPartHaveTheBitsOfTheWhole) {
  Matrix a = normal(40, 1030), b = normal(1030, 100), c = multiply(2, a, b, 0, Matrix{40, 100});
  Matrix part{3, 5};
  product_bf16(2, 3, 5, 1030, {&a.at(14, 0), a.stride}, {&b.at(0, 37), b.stride}, 0, part.data(),
               part.stride);
  for (Index i = 0; i < 3; ++i) {
    for (Index j = 0; j < 5; ++j) EXPECT_EQ(part.at(i, j), c.at(14 + i, 37 + j)) << i << ", " << j;
  }
}

TEST_F(Bf16Products, KeepNaNAndInfinityInTheirRowAndColumn) {
  for (float value : {kNaN, kInfinity}) {
    for (bool transposed : {false, true}) {
      Matrix a = Matrix{30, 45, transposed}.fill([] { return 1.f; });
      Matrix b = Matrix{45, 40, transposed}.fill([] { return 2.f; });
      a.at(17, 44) = value;
      b.at(3, 39) = value;
      Matrix c = multiply(2, a, b, 0, Matrix{30, 40});
      for (Index i = 0; i < 30; ++i) {
        for (Index j = 0; j < 40; ++j) {
          const float found = c.at(i, j);
          if (i != 17 && j != 39) {
            ASSERT_EQ(found, 90) << i << ", " << j;
          } else {
            ASSERT_TRUE(std::isnan(value) ? std::isnan(found) : found == value) << i << ", " << j;
          }
        }
      }
    }
  }
}

// Memory that ends where its page does, with none behind it.
class AtTheEnd {
 public:
  explicit AtTheEnd(Index floats) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t wanted = static_cast<size_t>(floats) * sizeof(float);
    const size_t whole = (wanted + page - 1) / page * page;
    bytes_ = whole + page;
    start_ = static_cast<char*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (start_ == MAP_FAILED || mprotect(start_ + whole, page, PROT_NONE) != 0) std::abort();
    data_ = reinterpret_cast<float*>(start_ + whole - wanted);
    std::fill(data_, data_ + floats, 1.f);
  }
  ~AtTheEnd() { munmap(start_, bytes_); }
  AtTheEnd(const AtTheEnd&) = delete;
  AtTheEnd& operator=(const AtTheEnd&) = delete;
  float* data() const { return data_; }

 private:
  size_t bytes_;
  char* start_;
  float* data_;
};

TEST_F(Bf16Products, TouchNothingBehindTheMatrices) {
  const Index m = 13, n = 37, k = 35;
  const AtTheEnd a(m * k), b(k * n), c(m * n);
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      std::fill(c.data(), c.data() + m * n, 1.f);
      product_bf16(1, m, n, k, {a.data(), ta ? m : k, ta}, {b.data(), tb ? k : n, tb}, 1, c.data(),
                   n);
      for (Index i = 0; i < m * n; ++i) ASSERT_EQ(c.data()[i], 36) << i;
    }
  }
}

TEST_F(Bf16Products, DoNotReadWhatBetaZeroOverwrites) {
  for (Index k : {9, 1100}) {
    Matrix a = integers(14, k), b = integers(k, 35), before{14, 35};  // NaN all over
    Matrix c = multiply(2, a, b, 0, before);
    expect_product(a, b, 0, before, c, 0);
  }
}

TEST_F(Bf16Products, WithoutTermsAreBetaTimesWhatWasThere) {
  for (float beta : {0.f, 0.5f}) {
    std::vector<float> c(13 * 33, beta == 0 ? kNaN : 6);
    product_bf16(2, 13, 33, 0, {nullptr, 0}, {nullptr, 33}, beta, c.data(), 33);
    for (float x : c) EXPECT_EQ(x, beta * 6);
  }
}

TEST_F(Bf16Products, WithoutRowsOrColumnsTouchNothing) {
  float one = 1, c = kUntouched;
  product_bf16(2, 0, 1, 1, {nullptr, 1}, {&one, 1}, 0, &c, 1);
  product_bf16(2, 1, 0, 1, {&one, 1}, {nullptr, 0}, 0, &c, 0);
  product_bf16(2, 0, 0, 0, {nullptr, 0}, {nullptr, 0}, 0, nullptr, 0);
  EXPECT_EQ(c, kUntouched);
}

class ForcedIsa {
 public:
  explicit ForcedIsa(const char* isa) {
    if (const char* now = std::getenv(kName)) before_ = now;
    isa != nullptr ? setenv(kName, isa, 1) : unsetenv(kName);
  }
  ~ForcedIsa() { before_ ? setenv(kName, before_->c_str(), 1) : unsetenv(kName); }
  ForcedIsa(const ForcedIsa&) = delete;
  ForcedIsa& operator=(const ForcedIsa&) = delete;

 private:
  static constexpr const char* kName = "GALLOP_FORCE_ISA";
  std::optional<std::string> before_;
};

TEST_F(Bf16Products, AreOffBelowTheInstructionSetTheyNeed) {
  const ForcedIsa forced("baseline");
  EXPECT_FALSE(has_bf16_products());
}

TEST(NoBf16Products, AreRefusedInOneSentence) {
  const ForcedIsa any(nullptr);
  if (has_bf16_products()) GTEST_SKIP() << "this CPU has them";
  float x = 1;
  try {
    product_bf16(1, 1, 1, 1, {&x, 1}, {&x, 1}, 0, &x, 1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(e.what()).find("AVX512-BF16"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace gallop::gpt::cpu
