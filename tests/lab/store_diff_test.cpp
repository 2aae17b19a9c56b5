// SPDX-License-Identifier: MIT
#include "lab/store_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gallop/error.h"
#include "lab/figures.h"

namespace gallop::lab {
namespace {

using testing::HasSubstr;

// Twelve samples around a centre, the same shape every time.
StoredRow around(double centre, int64_t batch = 4, int64_t run = 1) {
  Row row;
  row.set("model", "S").set("batch", batch).end_config();
  std::vector<double> samples;
  for (int i = 0; i < 12; ++i) samples.push_back(centre * (1 + 0.001 * (i % 7 - 3)));
  row.set("total_ms", centre).set("tokens_per_s", 1000 / centre);
  row.keep_samples("total_ms", samples);
  return {run, "bench train", "hash " + std::to_string(batch), row, "here"};
}

DiffOptions by_samples() {
  DiffOptions o;
  o.unit = Unit::samples;
  return o;
}

std::string verdict(const Diff& diff, size_t row = 0) {
  return text(diff.table.rows.at(row), "verdict");
}

TEST(StoreDiff, SaysWhatIsBetterAndWhatIsWorse) {
  const Diff faster = compare_results({around(10)}, {around(9)}, by_samples());
  EXPECT_EQ(verdict(faster), "better");
  EXPECT_EQ(faster.better, 1);
  EXPECT_NEAR(*number(faster.table.rows[0], "b_over_a"), 0.9, 0.002);
  const Diff slower = compare_results({around(9)}, {around(10)}, by_samples());
  EXPECT_EQ(verdict(slower), "worse");
  EXPECT_EQ(slower.worse, 1);
}

TEST(StoreDiff, SaysWhenMachinesDiffer) {
  StoredRow elsewhere = around(9);
  elsewhere.machine = "there";
  const auto notes = [](const Diff& d) { return testing::PrintToString(d.table.notes); };
  EXPECT_THAT(notes(compare_results({around(10)}, {elsewhere}, {})), HasSubstr("here and there"));
  EXPECT_THAT(notes(compare_results({around(10)}, {around(9)}, {})),
              testing::Not(HasSubstr("different machines")));
}

TEST(StoreDiff, FewRunsProveNothing) {
  const Diff d = compare_results({around(9)}, {around(10)}, {});
  EXPECT_EQ(verdict(d), "maybe worse");
  EXPECT_EQ(d.worse, 0);
  EXPECT_EQ(d.unproven, 1);
  EXPECT_EQ(verdict(compare_results({around(10)}, {around(9)}, {})), "maybe better");
}

// Two processes of one program: each a little off, samples close together.
TEST(StoreDiff, LuckOfProcessesIsNoDifference) {
  const double luck[] = {1.00, 1.04, 0.97, 1.02, 0.99};
  std::vector<StoredRow> a, b;
  for (int i = 0; i < 5; ++i) {
    a.push_back(around(10 * luck[i], 4, i));
    b.push_back(around(10 * luck[(i + 2) % 5] * 1.001, 4, 10 + i));
  }
  const Diff d = compare_results(a, b, {});
  EXPECT_EQ(verdict(d), "no difference seen");
  EXPECT_EQ(*d.table.rows[0].find("unit"), Value(std::string("runs")));
  EXPECT_EQ(*d.table.rows[0].find("n_a"), Value(int64_t{5}));
  for (StoredRow& r : b) {
    r = around(1.2 * std::get<double>(*r.row.find("total_ms")), 4, r.run);
  }
  EXPECT_EQ(verdict(compare_results(a, b, {})), "worse");
}

TEST(StoreDiff, SaysSoWhenNoDifferenceIsSeen) {
  const Diff same = compare_results({around(10)}, {around(10)}, {});
  EXPECT_EQ(verdict(same), "no difference seen");
  EXPECT_EQ(same.same, 1);
}

TEST(StoreDiff, AToleranceForgivesSmallChanges) {
  DiffOptions lenient = by_samples();
  lenient.tolerance = 0.05;
  const Diff little = compare_results({around(10)}, {around(10.2)}, lenient);
  EXPECT_EQ(verdict(little), "worse, within the tolerance");
  EXPECT_EQ(little.worse, 0);
  EXPECT_EQ(compare_results({around(10)}, {around(11)}, lenient).worse, 1);
  EXPECT_EQ(compare_results({around(10)}, {around(10.2)}, by_samples()).worse, 1);
}

TEST(StoreDiff, MoreTokensASecondAreBetter) {
  std::vector<StoredRow> a, b;
  for (int i = 0; i < 8; ++i) {
    a.push_back(around(10 + 0.01 * i, 4, i));
    b.push_back(around(9 + 0.01 * i, 4, 10 + i));
  }
  DiffOptions o;
  o.metric = "tokens_per_s";
  EXPECT_EQ(verdict(compare_results(a, b, o)), "better");
  EXPECT_EQ(verdict(compare_results(b, a, o)), "worse");
}

TEST(StoreDiff, ComparesEachConfigurationWithItself) {
  const Diff d = compare_results({around(10, 4), around(20, 8), around(5, 1)},
                                 {around(22, 8), around(9, 4), around(7, 2)}, by_samples());
  ASSERT_EQ(d.table.rows.size(), 2U);
  EXPECT_EQ(*d.table.rows[0].find("batch"), Value(int64_t{4}));
  EXPECT_EQ(verdict(d, 0), "better");
  EXPECT_EQ(verdict(d, 1), "worse");
  EXPECT_EQ(d.table.rows[0].find("model"), nullptr);  // it is the same in all
  EXPECT_THAT(d.table.notes.back(), HasSubstr("1 configurations are in a alone, 1 in b"));
}

TEST(StoreDiff, OneValueASideShowsNothingHoweverFarApart) {
  DiffOptions o;
  o.metric = "tokens_per_s";
  const Diff d = compare_results({around(1)}, {around(100)}, o);
  EXPECT_EQ(verdict(d), "no difference seen");
  EXPECT_THAT(d.table.notes, testing::Contains(HasSubstr("too few samples")));
}

TEST(StoreDiff, NothingInCommonIsAnError) {
  EXPECT_THROW(compare_results({around(1, 4)}, {around(1, 8)}, {}), Error);
  EXPECT_THROW(compare_results({}, {around(1, 8)}, {}), Error);
  DiffOptions o;
  o.metric = "colour";
  try {
    compare_results({around(1)}, {around(1)}, o);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("colour"));
  }
}

}  // namespace
}  // namespace gallop::lab
