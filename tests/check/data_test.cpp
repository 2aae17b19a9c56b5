// SPDX-License-Identifier: MIT
#include "check/data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "core/convert.h"

namespace gallop::check {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

// ---- half_spacing ----

TEST(HalfSpacing, OfFp32IsHalfTheWayToTheNext) {
  std::mt19937 random(1);
  for (Bits32 exponent = 0; exponent < 254; ++exponent) {
    const auto any = static_cast<Bits32>(random() & 0x7fffff);
    for (Bits32 mantissa : {0u, 1u, 0x7fffffu, any}) {
      const float x = float_of(exponent << 23 | mantissa);
      const double next = std::nextafter(x, INFINITY);
      ASSERT_EQ(half_spacing(DType::f32, x), (next - x) / 2) << x;
      ASSERT_EQ(half_spacing(DType::f32, -x), (next - x) / 2) << x;
    }
  }
}

TEST(HalfSpacing, OfFp64IsHalfTheWayToTheNext) {
  std::mt19937_64 random(1);
  for (uint64_t exponent = 0; exponent < 2046; ++exponent) {
    for (uint64_t mantissa : {uint64_t{0}, uint64_t{1}, random() >> 12, random() >> 12}) {
      const double x = __builtin_bit_cast(double, exponent << 52 | mantissa);
      ASSERT_EQ(half_spacing(DType::f64, x), (std::nextafter(x, INFINITY) - x) / 2) << x;
      ASSERT_EQ(half_spacing(DType::f64, -x), (std::nextafter(x, INFINITY) - x) / 2) << x;
    }
  }
}

// Code by code: the next code is the next value.
void expect_half_spacings(DType type, Half infinity, float (*decode)(Half)) {
  for (Half code = 0; code + 1 < infinity; ++code) {
    const double x = decode(code), next = decode(static_cast<Half>(code + 1));
    ASSERT_EQ(half_spacing(type, x), (next - x) / 2) << x;
    ASSERT_EQ(half_spacing(type, -(x + (next - x) / 4)), (next - x) / 2) << x;
  }
}

TEST(HalfSpacing, OfBf16IsHalfTheWayToTheNext) {
  expect_half_spacings(DType::bf16, 0x7f80, from_bf16);
}

TEST(HalfSpacing, OfFp16IsHalfTheWayToTheNext) {
  expect_half_spacings(DType::f16, 0x7c00, from_f16);
}

// ---- elements ----

TEST(Element, IsReadBackAsTheNearestValueOfItsType) {
  const double x = 1 + 0x1p-9 + 0x1p-30;
  const double nearest[] = {1 + 0x1p-9, x, 1, 1 + 0x1p-9};
  for (size_t t = 0; t < 4; ++t) {
    Buffer b(kTypes[t], 3);
    b.set(1, x);
    EXPECT_EQ(b.at(1), nearest[t]) << to_string(kTypes[t]);
    b.set(1, -INFINITY);
    EXPECT_EQ(b.at(1), -INFINITY);
    b.set(1, NAN);
    EXPECT_TRUE(std::isnan(b.at(1)));
  }
}

TEST(Element, IsWhereItsTypePutsIt) {
  for (DType type : kTypes) {
    Buffer b(type, 10);
    for (int64_t i = 0; i < 10; ++i) b.set(i, static_cast<double>(i));
    const char* raw = static_cast<const char*>(b.data());
    EXPECT_EQ(read_element(raw + 3 * size_of(type), type, 4), 7) << to_string(type);
  }
}

// ---- Buffer ----

TEST(Buffer, StartsAtACacheLineOrOneElementPastIt) {
  for (DType type : kTypes) {
    for (int64_t n : {0, 1, 1000}) {
      const Buffer aligned(type, n), unaligned(type, n, true);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned.data()) % 64, 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(unaligned.data()) % 64, size_of(type));
    }
  }
}

TEST(Buffer, FillsWithNormalValuesOfTheAskedScale) {
  Buffer b(DType::f64, 60000);
  b.fill_normal(1, 0.5);
  double sum = 0, squares = 0;
  int beyond_two = 0;
  for (int64_t i = 0; i < b.size(); ++i) {
    sum += b.at(i);
    squares += b.at(i) * b.at(i);
    beyond_two += std::abs(b.at(i)) > 1;
  }
  const double n = static_cast<double>(b.size());
  EXPECT_NEAR(sum / n, 0, 6 * 0.5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 0.25, 6 * 0.25 * std::sqrt(2 / n));
  EXPECT_NEAR(beyond_two / n, 0.0455, 6 * std::sqrt(0.0455 / n));
}

TEST(Buffer, FillsEveryElementTheSameInEveryTypeButForRounding) {
  const int64_t n = 140000;  // more than two periods
  Buffer wide(DType::f64, n);
  wide.fill_normal(3, 1);
  for (DType type : {DType::f32, DType::bf16, DType::f16}) {
    Buffer b(type, n);
    b.fill_normal(3, 1);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_LE(std::abs(b.at(i) - wide.at(i)), half_spacing(type, wide.at(i)) * 1.001) << i;
    }
  }
  Buffer other(DType::f64, n);
  other.fill_normal(4, 1);
  int same = 0;
  for (int64_t i = 0; i < n; ++i) same += other.at(i) == wide.at(i);
  EXPECT_LT(same, n / 100);
}

TEST(Buffer, FillingLeavesTheGuardsIntact) {
  for (DType type : kTypes) {
    for (int64_t n : {0, 1, 257, 140000}) {
      for (bool unaligned : {false, true}) {
        Buffer b(type, n, unaligned);
        EXPECT_TRUE(b.guards_intact());
        b.fill_normal(1, 1);
        EXPECT_TRUE(b.guards_intact());
      }
    }
  }
}

TEST(Buffer, NoticesAWriteJustOutsideItsElements) {
  for (DType type : kTypes) {
    for (int64_t n : {0, 1, 255, 256}) {
      for (bool unaligned : {false, true}) {
        const auto end = n * static_cast<int64_t>(size_of(type));
        for (int64_t at : {end, end + 1, end + 31, int64_t{-1}, int64_t{-64}}) {
          Buffer b(type, n, unaligned);
          static_cast<unsigned char*>(b.data())[at] ^= 1;
          ASSERT_FALSE(b.guards_intact()) << to_string(type) << " n=" << n << " at " << at;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gallop::check
