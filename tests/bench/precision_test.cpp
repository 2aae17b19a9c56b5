// SPDX-License-Identifier: MIT
#include "bench/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gallop/error.h"

namespace gallop::bench {
namespace {

using lab::Row;
using lab::Table;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

const Row& find(const Table& table, const std::string& test, const std::string& arithmetic,
                double added) {
  for (const Row& row : table.rows) {
    if (std::get<std::string>(*row.find("test")) == test &&
        std::get<std::string>(*row.find("arithmetic")) == arithmetic &&
        std::get<double>(*row.find("added")) == added) {
      return row;
    }
  }
  throw std::out_of_range(test + " " + arithmetic);
}
double number(const Row& row, const char* name) { return std::get<double>(*row.find(name)); }
bool stalled(const Row& row) { return std::holds_alternative<int64_t>(*row.find("stalled_after")); }
int64_t stalled_after(const Row& row) { return std::get<int64_t>(*row.find("stalled_after")); }

PrecisionOptions updates(std::vector<double> list, int64_t count = 1000) {
  PrecisionOptions o;
  o.updates = std::move(list);
  o.count = count;
  return o;
}

std::string refusal(const PrecisionOptions& o) {
  try {
    precision(o);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(PrecisionSum, OfAThousandHundredthsPrintsAsTorchDoes) {
  const Table table = precision({});
  const auto printed = [&](const char* arithmetic) {
    return std::get<std::string>(*find(table, "sum", arithmetic, 0.01).find("printed"));
  };
  EXPECT_EQ(printed("fp32"), "10.0001");
  EXPECT_EQ(printed("fp16"), "9.9531");
  EXPECT_EQ(printed("fp32 += fp16"), "10.0021");
  EXPECT_EQ(printed("fp32 += fp16, upcast first"), "10.0021");
}

TEST(PrecisionSum, IsExactInEveryArithmeticThatHoldsAllPartialSums) {
  PrecisionOptions o;
  o.value = -0.25;
  o.count = 256;  // down to -64 in quarters: 8 bits
  for (const Row& row : precision(o).rows) {
    if (std::get<std::string>(*row.find("test")) != "sum") continue;
    EXPECT_EQ(number(row, "result"), -64) << std::get<std::string>(*row.find("arithmetic"));
    EXPECT_EQ(number(row, "relative_error"), 0);
    EXPECT_EQ(number(row, "percent_of_change"), 100);
    EXPECT_FALSE(stalled(row));
  }
}

TEST(PrecisionSum, InBf16StopsWhereHalfASpacingIsMoreThanTheValue) {
  // bf16's 0.01 is above half of 2^-6, the spacing from 2 to 4, and below half of 2^-5, the one
  // from there on.
  const Table table = precision({});
  const Row& bf16 = find(table, "sum", "bf16", 0.01);
  EXPECT_EQ(number(bf16, "result"), 4);
  EXPECT_TRUE(stalled(bf16));
  EXPECT_DOUBLE_EQ(number(bf16, "relative_error"), -0.6);
  EXPECT_FALSE(stalled(find(table, "sum", "bf16, Kahan", 0.01)));
}

TEST(PrecisionSum, CompensatedIsWithinASpacingOfTheValuesTotal) {
  const Table table = precision({});
  EXPECT_NEAR(number(find(table, "sum", "fp16, Kahan", 0.01), "result"), 10.002136, 0x1p-7);
  EXPECT_NEAR(number(find(table, "sum", "bf16, Kahan", 0.01), "result"), 10.009766, 0x1p-4);
}

TEST(PrecisionSum, BeyondARangeIsInfinite) {
  PrecisionOptions o;
  o.value = 1e6;
  const Table table = precision(o);
  EXPECT_TRUE(std::isinf(number(find(table, "sum", "fp16", 1e6), "result")));
  EXPECT_NEAR(number(find(table, "sum", "fp32", 1e6), "relative_error"), 0, 1e-5);
  EXPECT_THAT(table.notes, Contains(HasSubstr("1e+06 is beyond fp16; ")));
}

TEST(PrecisionParameter, InBf16MovesOneSpacingAStepUntilItDoubles) {
  // From 1 to 2 the spacing is 2^-7, 0.0078: 0.005 is more than half of it, and 2 has twice that.
  const Table table = precision(updates({5e-3}));
  const Row& bf16 = find(table, "parameter", "bf16", 5e-3);
  EXPECT_EQ(number(bf16, "result"), 2);
  EXPECT_EQ(stalled_after(bf16), 128);
}

TEST(PrecisionParameter, ATieGoesToEven) {
  constexpr double kHalf = 0x1p-8, kAbove = 0x1p-8 + 0x1p-23;
  PrecisionOptions o = updates({kHalf, kAbove});
  const Table even = precision(o);  // 1 is even
  EXPECT_EQ(stalled_after(find(even, "parameter", "bf16", kHalf)), 0);
  EXPECT_EQ(stalled_after(find(even, "parameter", "bf16", kAbove)), 128);
  o.start = 1 + 0x1p-7;  // odd, with an even neighbour above
  const Table odd = precision(o);
  EXPECT_EQ(stalled_after(find(odd, "parameter", "bf16", kHalf)), 1);
  EXPECT_EQ(number(find(odd, "parameter", "bf16", kHalf), "result"), 1 + 0x1p-6);
}

TEST(PrecisionParameter, InFp16StopsAtAnEighthOfBf16sUpdates) {
  const Table table = precision(updates({0x1p-11, 0x1p-11 + 0x1p-23}, 2000));
  EXPECT_EQ(stalled_after(find(table, "parameter", "fp16", 0x1p-11)), 0);
  EXPECT_EQ(stalled_after(find(table, "parameter", "fp16", 0x1p-11 + 0x1p-23)), 1024);
}

TEST(PrecisionParameter, HasNotStalledWhenItMovedToTheEnd) {
  const Table table = precision(updates({5e-3}, 128));
  EXPECT_FALSE(stalled(find(table, "parameter", "bf16", 5e-3)));
}

TEST(PrecisionParameter, WithARemainderIsFp32BitForBit) {
  const std::vector<double> list = {0.3, -1e-2, 5e-3, 1e-3, -1e-4, 1e-5, 1e-7, 3e-8};
  const Table table = precision(updates(list, 4000));
  for (const double update : list) {
    EXPECT_EQ(number(find(table, "parameter", "bf16 + remainder", update), "result"),
              number(find(table, "parameter", "fp32", update), "result"))
        << update;
    EXPECT_EQ(*find(table, "parameter", "bf16 + remainder", update).find("stalled_after"),
              *find(table, "parameter", "fp32", update).find("stalled_after"))
        << update;
  }
  EXPECT_EQ(stalled_after(find(table, "parameter", "fp32", 3e-8)), 0);  // half of 2^-23 is 6e-8
}

TEST(PrecisionParameter, StochasticRoundingIsRightInTheMean) {
  // Below 2 each addition moves by 2^-7 with probability p = update / 2^-7: a binomial. fp32 rounds
  // what it adds to a multiple of 2^-23.
  PrecisionOptions o = updates({1e-4, 1e-5, 3e-4});
  o.seeds = 400;
  const Table table = precision(o);
  const auto n = static_cast<double>(o.count);
  for (const double update : o.updates) {
    const Row& row = find(table, "parameter", "bf16, stochastic", update);
    const double p = update * 128, sigma = std::sqrt(n * p * (1 - p)) / 128;
    const double bound = 4 * sigma / std::sqrt(o.seeds) + n * 0x1p-24;
    EXPECT_NEAR(number(row, "result"), 1 + n * update, bound) << update;
    // The standard deviation of a sample's deviation is sigma / sqrt(2 seeds), or little more.
    EXPECT_NEAR(number(row, "spread"), sigma, 5 * sigma / std::sqrt(2.0 * o.seeds)) << update;
    EXPECT_FALSE(stalled(row));
  }
}

TEST(PrecisionParameter, StochasticRoundingDrawsTheSameForTheSameSeeds) {
  PrecisionOptions o = updates({1e-3}, 100);
  o.seeds = 8;
  const Table first = precision(o), again = precision(o);
  EXPECT_EQ(first.rows, again.rows);
  o.seed = 1000;
  EXPECT_NE(first.rows, precision(o).rows);
}

TEST(PrecisionParameter, OfNothingLeftHasNoRelativeError) {
  const Table table = precision(updates({-0x1p-7}, 128));
  const Row& row = find(table, "parameter", "fp32", -0x1p-7);
  EXPECT_EQ(number(row, "result"), 0);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(*row.find("relative_error")));
  EXPECT_EQ(number(row, "percent_of_change"), 100);
}

TEST(PrecisionNotes, SayWhatTheRowsSay) {
  const Table table = precision({});
  EXPECT_THAT(table.notes, Contains(HasSubstr("0.01 is 0.010002136 in fp16")));
  EXPECT_THAT(table.notes, Contains(HasSubstr("0.010009766 in bf16")));
  EXPECT_THAT(table.notes, Contains(HasSubstr("the sum in bf16 stops at 4 after ")));
  EXPECT_THAT(table.notes, Contains(HasSubstr("in bf16 is never moved by 0.001, 0.0001, 1e-05")));
  EXPECT_THAT(table.notes, Contains(HasSubstr("in fp16 is never moved by 0.0001, 1e-05")));
  EXPECT_THAT(table.notes, Contains(HasSubstr("for 4 of 4 updates")));
}

TEST(PrecisionNotes, ClaimNothingThatDidNotHappen) {
  PrecisionOptions o = updates({});
  o.value = 0.5;
  o.count = 4;
  const Table table = precision(o);
  EXPECT_THAT(table.notes, Contains("0.5 is itself in fp16; itself in bf16"));
  EXPECT_THAT(table.notes, Not(Contains(HasSubstr("stops"))));
  EXPECT_THAT(table.notes, Not(Contains(HasSubstr("moved"))));
  EXPECT_THAT(table.notes, Not(Contains(HasSubstr("remainder"))));
  EXPECT_THAT(table.notes, Not(Contains(HasSubstr("stochastic"))));  // no rounding, no spread
}

TEST(PrecisionOptions, RefusedInOneSentence) {
  PrecisionOptions o;
  o.value = 0;
  EXPECT_EQ(refusal(o), "the value to add is 0, expected a number of size 1e-30 to 1e30");
  o.value = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(refusal(o), HasSubstr("is nan, expected"));
  EXPECT_THAT(refusal(updates({1e-3, 1e31})), HasSubstr("an update is 1e+31, expected"));
  EXPECT_EQ(refusal(updates({}, 0)), "count is 0, expected 1 to 10000000 additions");
  o = {};
  o.seeds = 0;
  EXPECT_EQ(refusal(o), "seeds is 0, expected 1 to 10000 runs");
  o.seeds = 10000;
  o.count = 10'000'000;
  EXPECT_THAT(refusal(o), HasSubstr("10000000 additions for each of 10000 seeds"));
}

}  // namespace
}  // namespace gallop::bench
