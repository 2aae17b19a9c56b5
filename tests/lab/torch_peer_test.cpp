// SPDX-License-Identifier: MIT
#include "lab/torch_peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "folder.h"
#include "gallop/error.h"

namespace gallop::lab {
namespace {

using testing::HasSubstr;

// A program in place of python that behaves as the script says.
class TorchPeerTest : public testing::Test {
 protected:
  void pretend(const std::string& script) {
    const std::string path = folder_ / "python";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    chmod(path.c_str(), 0755);
    setenv("GALLOP_PYTHON", path.c_str(), 1);
  }
  void TearDown() override { unsetenv("GALLOP_PYTHON"); }
  static std::string why(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was thrown";
  }

 private:
  test::Folder folder_;
};

TEST_F(TorchPeerTest, AsksEachModeForTheCellAndKeepsTheOrder) {
  // $5 is the mode: -c TEXT --serve --modes MODE ...
  pretend(R"(echo '{"torch": "9.9"}'
while read n size; do
  echo "{\"rows\": [{\"contender\": \"torch_$5\", \"num_params\": $n, \"param_size\": $size, \"median_ms\": 0.5}]}"
done)");
  TorchGrid grid({"fused", "foreach"}, 3, 0.1);
  for (int64_t n : {1, 4}) {
    const std::vector<Row> rows = grid.cell(n, 1000);
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(std::get<std::string>(*rows[0].find("contender")), "torch_fused");
    EXPECT_EQ(std::get<std::string>(*rows[1].find("contender")), "torch_foreach");
    EXPECT_EQ(std::get<int64_t>(*rows[1].find("num_params")), n);
    EXPECT_EQ(std::get<int64_t>(*rows[1].find("param_size")), 1000);
    EXPECT_EQ(std::get<double>(*rows[0].find("median_ms")), 0.5);
  }
}

TEST_F(TorchPeerTest, AsksForAStepByItsShapes) {
  // The question comes back as the name of the mode, without its quotes.
  pretend(R"(echo '{"torch": "9.9"}'
while read line; do
  echo "{\"rows\": [{\"mode\": \"$(echo "$line" | tr -d '"')\", \"median_ms\": 0.25}]}"
done)");
  TorchStep torch(0, 0.1);
  const bench::ShapeList shapes{"two", {{"a", {2, 3}, Role::hidden}, {"b", {7}}}};
  const Row row = torch.measure("adamw", shapes, DType::bf16, 1.5);
  EXPECT_EQ(std::get<double>(*row.find("median_ms")), 0.25);
  const auto asked = std::get<std::string>(*row.find("mode"));
  for (const char* part :
       {"optimizer:adamw", "dtype:bf16", "clip_norm:1.5", "[[2,3],[7]]", "hidden:[true,false]"}) {
    EXPECT_THAT(asked, HasSubstr(part));
  }
}

TEST_F(TorchPeerTest, ProgramThatIsNotThere) {
  setenv("GALLOP_PYTHON", "/nowhere/python3", 1);
  EXPECT_THAT(why([] { TorchGrid({"fused"}, 1, 0.1); }), HasSubstr("/nowhere/python3"));
}

TEST_F(TorchPeerTest, PythonWithoutTorch) {
  pretend(R"(echo '{"error": "No module named torch"}')");
  EXPECT_THAT(why([] { TorchGrid({"fused"}, 1, 0.1); }), HasSubstr("has no torch"));
}

TEST_F(TorchPeerTest, ProgramThatSaysSomethingElse) {
  pretend("echo hello");
  EXPECT_THAT(why([] { TorchGrid({"fused"}, 1, 0.1); }), HasSubstr("'hello' is not"));
}

TEST_F(TorchPeerTest, ProgramThatDiesBetweenCells) {
  pretend(R"(echo '{"torch": "9.9"}'; read line; exit 3)");
  TorchGrid grid({"fused"}, 1, 0.1);
  EXPECT_THAT(why([&] { grid.cell(1, 16); }), HasSubstr("has ended"));
}

TEST_F(TorchPeerTest, AnswerWithoutRows) {
  pretend(R"(echo '{"torch": "9.9"}'; read line; echo '{}'; read line)");
  TorchGrid grid({"fused"}, 1, 0.1);
  EXPECT_THAT(why([&] { grid.cell(1, 16); }), HasSubstr("without rows"));
}

}  // namespace
}  // namespace gallop::lab
