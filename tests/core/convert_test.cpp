// SPDX-License-Identifier: MIT
// Judged by tables of all values of a format, built with ldexp, and by searching them in double.
#include "core/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <random>
#include <vector>

namespace gallop {
namespace {

struct Format {
  const char* name;
  int exponent_bits, mantissa_bits;
  float (*decode)(Half);
  Half (*nearest)(float);
  Half (*stochastic)(float, Bits32);

  int infinity() const { return ((1 << exponent_bits) - 1) << mantissa_bits; }
  bool is_nan(Half h) const { return (h & 0x7fff) > infinity(); }
  // A magnitude, with infinity's code standing for the first power of two that is too large.
  double magnitude(int code) const {
    const int mantissa = code & ((1 << mantissa_bits) - 1), exponent = code >> mantissa_bits;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  }
};

constexpr Format kBf16{"bf16", 8, 7, from_bf16, to_bf16_nearest, to_bf16_stochastic};
constexpr Format kF16{"fp16", 5, 10, from_f16, to_f16_nearest, to_f16_stochastic};

void PrintTo(const Format& f, std::ostream* out) { *out << f.name; }

Half with_sign(int code, float x) {
  return static_cast<Half>(std::signbit(x) ? code | 0x8000 : code);
}

// The magnitudes of a format in increasing order; the index is the code.
class Table {
 public:
  explicit Table(const Format& f) {
    for (int code = 0; code <= f.infinity(); ++code) values_.push_back(f.magnitude(code));
  }
  int infinity() const { return static_cast<int>(values_.size()) - 1; }
  double operator[](int code) const { return values_[static_cast<size_t>(code)]; }
  // The largest code that is not above |x|.
  int below(float x) const {
    const double magnitude = std::abs(static_cast<double>(x));
    return static_cast<int>(std::upper_bound(values_.begin(), values_.end(), magnitude) -
                            values_.begin()) -
           1;
  }
  // How far |x| is from below(x) to its upper neighbour; infinity and beyond: 0.
  double fraction(float x) const {
    const int low = below(x);
    if (low == infinity()) return 0;
    return (std::abs(static_cast<double>(x)) - (*this)[low]) / ((*this)[low + 1] - (*this)[low]);
  }
  Half nearest(float x, bool ties_away) const {
    const int low = below(x);
    const double part = fraction(x);
    const bool up = part > 0.5 || (part == 0.5 && (ties_away || low % 2 == 1));
    return with_sign(low + up, x);
  }

 private:
  std::vector<double> values_;
};

// fp32 values of every exponent and sign: ends, ties of both formats and beside them, and at
// random.
std::vector<float> spread_floats() {
  std::mt19937 random(1);
  std::vector<Bits32> mantissas = {0, 1, 2, 0x7fffff, 0x7ffffe, 0x400000, 0x3fffff};
  for (Bits32 unit : {0x10000u, 0x2000u}) {
    for (Bits32 odd : {0u, unit, 0x7fffffu & ~(unit - 1), 0x7fffffu & ~(2 * unit - 1)}) {
      for (Bits32 low : {unit / 2 - 1, unit / 2, unit / 2 + 1, 1u, unit - 1}) {
        mantissas.push_back(odd | low);
      }
    }
  }
  std::vector<float> out;
  for (Bits32 exponent = 0; exponent < 255; ++exponent) {
    for (Bits32 sign : {0u, 0x80000000u}) {
      for (Bits32 m : mantissas) out.push_back(float_of(sign | exponent << 23 | m));
      for (int i = 0; i < 400; ++i) {
        out.push_back(float_of(sign | exponent << 23 | (random() & 0x7fffff)));
      }
    }
  }
  // Ties and their neighbours among fp16's subnormals, which are not at a fixed bit of the fp32.
  for (int twice = 1; twice < 2050; ++twice) {
    const float tie = std::ldexp(static_cast<float>(twice), -25);
    for (float x : {std::nextafter(tie, 0.0f), tie, std::nextafter(tie, 1.0f)}) {
      out.push_back(x);
      out.push_back(-x);
    }
  }
  return out;
}

const Bits32 kNans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001,
                        0xffc00000, 0xffffffff, 0x7f80ffff, 0xff808000};

class Convert : public testing::TestWithParam<Format> {
 protected:
  const Format& f = GetParam();
  const Table table{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Formats, Convert, testing::Values(kBf16, kF16),
                         [](const auto& i) { return i.param.name; });

TEST_P(Convert, DecodesEveryCodeToItsValue) {
  for (int code = 0; code < 65536; ++code) {
    const Half h = static_cast<Half>(code);
    const float got = f.decode(h);
    if (f.is_nan(h)) {
      ASSERT_TRUE(std::isnan(got)) << code;
      continue;
    }
    const int magnitude = code & 0x7fff;
    const double want = magnitude == f.infinity() ? INFINITY : f.magnitude(magnitude);
    ASSERT_EQ(std::abs(static_cast<double>(got)), want) << code;
    ASSERT_EQ(std::signbit(got), code >= 0x8000) << code;
  }
}

TEST_P(Convert, EncodingADecodedCodeGivesItBack) {
  for (int code = 0; code < 65536; ++code) {
    const Half h = static_cast<Half>(code);
    const Half back = f.nearest(f.decode(h));
    if (f.is_nan(h)) {
      ASSERT_TRUE(f.is_nan(back)) << code;
    } else {
      ASSERT_EQ(back, h);
    }
  }
}

TEST_P(Convert, NearestIsTheClosestAndTiesGoToEven) {
  for (float x : spread_floats()) ASSERT_EQ(f.nearest(x), table.nearest(x, false)) << x;
}

TEST_P(Convert, NearestKeepsInfinityAndNan) {
  EXPECT_EQ(f.nearest(INFINITY), f.infinity());
  EXPECT_EQ(f.nearest(-INFINITY), f.infinity() | 0x8000);
  for (Bits32 nan : kNans) EXPECT_TRUE(f.is_nan(f.nearest(float_of(nan)))) << nan;
}

TEST(ConvertBoundary, Fp16OverflowsAtHalfASpacingBeyondItsLargest) {
  EXPECT_EQ(to_f16_nearest(65504.0f), 0x7bff);
  EXPECT_EQ(to_f16_nearest(65519.99f), 0x7bff);
  EXPECT_EQ(to_f16_nearest(65520.0f), 0x7c00);
  EXPECT_EQ(to_f16_nearest(-65520.0f), 0xfc00);
  EXPECT_EQ(to_f16_nearest(65536.0f), 0x7c00);
  EXPECT_EQ(to_f16_nearest(3e38f), 0x7c00);
}

TEST(ConvertBoundary, Fp16KeepsItsSmallestAndRoundsHalfOfItToZero) {
  EXPECT_EQ(to_f16_nearest(0x1p-24f), 1);
  EXPECT_EQ(to_f16_nearest(0x1p-25f), 0);
  EXPECT_EQ(to_f16_nearest(0x1.000002p-25f), 1);
  EXPECT_EQ(to_f16_nearest(-0x1p-149f), 0x8000);
}

TEST(ConvertBoundary, Bf16OverflowsAtHalfASpacingBeyondItsLargest) {
  EXPECT_EQ(to_bf16_nearest(float_of(0x7f7f0000)), 0x7f7f);
  EXPECT_EQ(to_bf16_nearest(float_of(0x7f7f7fff)), 0x7f7f);
  EXPECT_EQ(to_bf16_nearest(float_of(0x7f7f8000)), 0x7f80);
  EXPECT_EQ(to_bf16_nearest(float_of(0xff7fffff)), 0xff80);
}

// ---- stochastic rounding ----

// A few values of every exponent: what 65,536 roundings each leave time for.
std::vector<float> some_floats() {
  std::mt19937 random(2);
  std::vector<float> out = {0x1p-149f, -0x1p-149f, 0x1p-25f,  0x1.8p-24f, 0x1.fffffep-15f,
                            65504.0f,  65505.0f,   65535.99f, -65520.0f,  1.0f,
                            -0.0f,     0x1p-126f,  3.4e38f,   1e5f};
  for (Bits32 exponent = 0; exponent < 255; ++exponent) {
    out.push_back(float_of((random() & 0x80000000u) | exponent << 23 | (random() & 0x7fffff)));
  }
  return out;
}

TEST_P(Convert, StochasticGivesOneOfTheTwoNeighboursInProportion) {
  for (float x : some_floats()) {
    const int low = table.below(x);
    const double wanted = table.fraction(x) * 65536;
    int up = 0;
    for (Bits32 random = 0; random < 65536; ++random) {
      const Half got = f.stochastic(x, random);
      if (got == with_sign(low, x)) continue;
      ASSERT_EQ(got, with_sign(low + 1, x)) << x << " with " << random;
      ++up;
    }
    // bf16 drops 16 bits and fp16 13, all of them counted; below fp16's normals more are dropped.
    const bool subnormal = std::abs(x) < f.magnitude(1 << f.mantissa_bits);
    ASSERT_NEAR(up, wanted, f.mantissa_bits == 10 && subnormal ? 7.99 : 0) << x;
  }
}

TEST_P(Convert, StochasticKeepsExactValuesForTheExtremesOfChance) {
  for (int code = 0; code < 65536; ++code) {
    const Half h = static_cast<Half>(code);
    for (Bits32 random : {0u, 1u, 7u, 8u, 0x7fffu, 0x8000u, 0xfff7u, 0xfff8u, 0xfffeu, 0xffffu}) {
      const Half got = f.stochastic(f.decode(h), random);
      ASSERT_TRUE(f.is_nan(h) ? f.is_nan(got) : got == h) << code << " with " << random;
    }
  }
}

TEST_P(Convert, StochasticKeepsExactValuesWhateverTheChance) {
  for (int code : {0, 1, 2, 127, 128, 129, 1023, 1024, 1025, 0x3c00, 0x3f80, 0x7bff,
                   f.infinity() - 1, f.infinity()}) {
    for (int sign : {0, 0x8000}) {
      const Half h = static_cast<Half>(code | sign);
      for (Bits32 random = 0; random < 65536; ++random) {
        ASSERT_EQ(f.stochastic(f.decode(h), random), h) << random;
      }
    }
  }
}

TEST_P(Convert, StochasticKeepsNan) {
  for (Bits32 nan : kNans) {
    for (Bits32 random = 0; random < 65536; ++random) {
      ASSERT_TRUE(f.is_nan(f.stochastic(float_of(nan), random))) << nan << " with " << random;
    }
  }
}

// ---- bf16 with a remainder ----

void expect_split(const Table& table, Bits32 bits) {
  const float x = float_of(bits);
  const SplitFloat parts = split_float(x);
  const float joined = join_float(parts.bf16, parts.remainder);
  if (std::isnan(x)) {
    ASSERT_TRUE(kBf16.is_nan(parts.bf16) && std::isnan(joined)) << std::hex << bits;
    return;
  }
  ASSERT_EQ(bits_of(joined), bits) << std::hex << bits;
  ASSERT_EQ(parts.bf16, table.nearest(x, true)) << std::hex << bits;
}

TEST(Split, JoinsToTheSameBitsAcrossAllPatterns) {
  const Table table(kBf16);
  for (Bits64 bits = 0; bits <= 0xffffffffu; bits += 4099) {
    ASSERT_NO_FATAL_FAILURE(expect_split(table, static_cast<Bits32>(bits)));
  }
}

TEST(Split, JoinsToTheSameBitsAroundEveryBoundary) {
  const Table table(kBf16);
  for (Bits32 high = 0; high < 65536; ++high) {
    for (Bits32 low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      ASSERT_NO_FATAL_FAILURE(expect_split(table, high << 16 | low));
    }
  }
}

TEST(Split, JoinsToTheSameBitsForEveryLowHalf) {
  const Table table(kBf16);
  for (Bits32 high : {0u, 1u, 0x7fu, 0x80u, 0x3f80u, 0x3f81u, 0x7f7fu, 0x8000u, 0xff7fu}) {
    for (Bits32 low = 0; low < 65536; ++low) {
      ASSERT_NO_FATAL_FAILURE(expect_split(table, high << 16 | low));
    }
  }
}

}  // namespace
}  // namespace gallop
