// SPDX-License-Identifier: MIT
#include "lab/row.h"

#include <gtest/gtest.h>

#include <limits>

#include "gallop/error.h"

namespace gallop::lab {
namespace {

std::vector<std::string> names_of(const Row& row) {
  std::vector<std::string> names;
  for (const auto& [name, value] : row) names.push_back(name);
  return names;
}

TEST(Row, KeepsTheOrderInWhichFieldsWereFirstSet) {
  const Row row = Row().set("b", 1).set("a", 2).set("c", 3);
  EXPECT_EQ(names_of(row), (std::vector<std::string>{"b", "a", "c"}));
}

TEST(Row, ReplacesAnExistingFieldInPlace) {
  const Row row = Row().set("b", 1).set("a", 2).set("b", "new");
  EXPECT_EQ(names_of(row), (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(*row.find("b"), Value(std::string("new")));
  EXPECT_EQ(row.size(), 2U);
}

TEST(Row, HoldsEveryIntegerTypeAsInt64) {
  const Row row = Row()
                      .set("short", static_cast<short>(-3))
                      .set("int", 7)
                      .set("unsigned", 8U)
                      .set("size", size_t{9})
                      .set("long_long", 10LL)
                      .set("byte", static_cast<uint8_t>(200));
  EXPECT_EQ(*row.find("short"), Value(int64_t{-3}));
  EXPECT_EQ(*row.find("int"), Value(int64_t{7}));
  EXPECT_EQ(*row.find("unsigned"), Value(int64_t{8}));
  EXPECT_EQ(*row.find("size"), Value(int64_t{9}));
  EXPECT_EQ(*row.find("long_long"), Value(int64_t{10}));
  EXPECT_EQ(*row.find("byte"), Value(int64_t{200}));
}

TEST(Row, HoldsBoolsAsBoolsAndFloatsAsDoubles) {
  const Row row = Row().set("flag", true).set("double", 2.0).set("float", 0.5F);
  EXPECT_EQ(*row.find("flag"), Value(true));
  EXPECT_EQ(*row.find("double"), Value(2.0));
  EXPECT_EQ(*row.find("float"), Value(0.5));
}

TEST(Row, HoldsEveryKindOfTextAsAString) {
  const char* pointer = "pointer";
  const std::string string = "string";
  const Row row = Row()
                      .set("literal", "literal")
                      .set("pointer", pointer)
                      .set("string", string)
                      .set("view", std::string_view("viewed").substr(0, 4));
  EXPECT_EQ(*row.find("literal"), Value(std::string("literal")));
  EXPECT_EQ(*row.find("pointer"), Value(std::string("pointer")));
  EXPECT_EQ(*row.find("string"), Value(std::string("string")));
  EXPECT_EQ(*row.find("view"), Value(std::string("view")));
}

TEST(Row, TakesANullPointerAndMonostateAsNoValue) {
  const char* nothing = nullptr;
  const Row row = Row().set("null", nothing).set("empty", Value());
  EXPECT_EQ(*row.find("null"), Value());
  EXPECT_EQ(*row.find("empty"), Value());
}

TEST(Row, RefusesAnUnsignedIntegerThatInt64CannotHold) {
  Row row;
  row.set("fits", static_cast<uint64_t>(INT64_MAX));
  try {
    row.set("seed", std::numeric_limits<uint64_t>::max());
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(),
                 "field 'seed' got 18446744073709551615, expected an integer of at most "
                 "9223372036854775807");
  }
  EXPECT_EQ(row.find("seed"), nullptr);
}

TEST(Row, FindsNothingUnderAnUnknownName) {
  EXPECT_EQ(Row().set("median_ms", 1.0).find("median"), nullptr);
}

TEST(Row, IsEqualOnlyWithTheSameFieldsInTheSameOrder) {
  EXPECT_EQ(Row().set("a", 1).set("b", 2), Row().set("a", 1).set("b", 2));
  EXPECT_NE(Row().set("a", 1).set("b", 2), Row().set("b", 2).set("a", 1));
  EXPECT_NE(Row().set("a", 1), Row().set("a", 1.0));
}

TEST(FieldNames, AreTheUnionOfAllRowsInFirstSeenOrder) {
  Table table;
  table.rows = {Row().set("x", 1).set("y", 1), Row().set("z", 1).set("x", 1), Row()};
  EXPECT_EQ(field_names(table), (std::vector<std::string>{"x", "y", "z"}));
}

}  // namespace
}  // namespace gallop::lab
