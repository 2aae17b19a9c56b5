// SPDX-License-Identifier: MIT
#include "lab/adam_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gallop::lab {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

Row cell(int64_t count, int64_t size, double unfused, double single, double multi) {
  Row row;
  row.set("num_params", count).set("param_size", size).set("compiled_ms", nullptr);
  row.set("unfused_ms", unfused).set("single_ms", single).set("multi_ms", multi);
  return row;
}

void add_torch(Row& row, double fused) {
  row.set("torch_fused_ms", fused).set("best_torch_ms", fused);
  row.set("times_faster_than_torch", fused / std::get<double>(*row.find("multi_ms")));
}

TEST(ReadGrid, SaysWhereEachModeWinsAndByHowMuch) {
  const std::vector<Row> rows = {cell(1, 16, 8, 1, 2), cell(4, 16, 8, 4, 2), cell(8, 64, 32, 4, 2)};
  const auto notes = read_grid(rows);
  EXPECT_THAT(notes, Contains("multi is gallop's fastest mode in 2 of 3 cells"));
  EXPECT_THAT(notes, Contains("single is gallop's fastest mode in 1 of 3 cells"));
  // Ratios 4, 4, 16: geometric mean 6.35.
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("faster than unfused in 3 of 3 cells"),
                                    HasSubstr("6.35x in the geometric mean"),
                                    HasSubstr("4.00x at worst (1x16)"),
                                    HasSubstr("16.00x at best (8x64)"))));
  EXPECT_THAT(notes, Contains(AllOf(HasSubstr("faster than single in 2 of 3"),
                                    HasSubstr("0.50x at worst (1x16)"))));
  EXPECT_THAT(notes, Not(Contains(HasSubstr("torch"))));
}

TEST(ReadGrid, NamesTheCellsInWhichTorchIsFaster) {
  std::vector<Row> rows = {cell(1, 16, 8, 1, 1), cell(4, 16, 8, 4, 2)};
  add_torch(rows[0], 3);
  add_torch(rows[1], 1.5);
  EXPECT_THAT(read_grid(rows), Contains("torch is faster at 4x16 (0.75x)"));
  EXPECT_THAT(read_grid(rows), Contains(HasSubstr("faster than torch fused in 1 of 2 cells")));
}

TEST(ReadGrid, CellsWithoutAPeerAreLeftOut) {
  std::vector<Row> rows = {cell(1, 16, 8, 1, 1), cell(32, 16, 8, 4, 2)};
  rows[0].set("torch_compiled_ms", 2.0);
  EXPECT_THAT(read_grid(rows), Contains(HasSubstr("faster than torch compiled in 1 of 1 cells")));
}

TEST(ReadGrid, NoRows) { EXPECT_TRUE(read_grid({}).empty()); }

TEST(AdamGrid, EveryCellHasEveryModeAndWasChecked) {
  AdamGridOptions o;
  o.tensors = {1, 3};
  o.sizes = {100, 257};
  o.threads = 2;
  o.sampler.time_limit_s = 0.01;
  o.sampler.warmup_limit_s = 0.01;
  const Table table = adam_grid(o);
  ASSERT_EQ(table.rows.size(), 4u);
  for (const Row& row : table.rows) {
    for (const char* field : {"unfused_ms", "single_ms", "multi_ms"}) {
      EXPECT_GT(std::get<double>(*row.find(field)), 0) << field;
    }
    EXPECT_EQ(std::get<std::string>(*row.find("check")), "pass");
    EXPECT_EQ(std::get<int64_t>(*row.find("threads")), 2);
  }
  EXPECT_EQ(std::get<int64_t>(*table.rows[1].find("num_params")), 3);
  EXPECT_EQ(std::get<int64_t>(*table.rows[2].find("param_size")), 257);
}

}  // namespace
}  // namespace gallop::lab
