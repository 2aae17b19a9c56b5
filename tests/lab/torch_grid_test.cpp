// SPDX-License-Identifier: MIT
#include "lab/torch_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "gallop/error.h"

namespace gallop::lab {
namespace {

using testing::HasSubstr;

// A program in place of python that behaves as the script says.
class TorchGridTest : public testing::Test {
 protected:
  void pretend(const std::string& script) {
    path_ = testing::TempDir() + "gallop-fake-python-" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ofstream(path_) << "#!/bin/sh\n" << script << "\n";
    chmod(path_.c_str(), 0755);
    setenv("GALLOP_PYTHON", path_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("GALLOP_PYTHON");
    if (!path_.empty()) std::remove(path_.c_str());
  }
  static std::string why(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was thrown";
  }

 private:
  std::string path_;
};

TEST_F(TorchGridTest, AsksEachModeForTheCellAndKeepsTheOrder) {
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

TEST_F(TorchGridTest, ProgramThatIsNotThere) {
  setenv("GALLOP_PYTHON", "/nowhere/python3", 1);
  EXPECT_THAT(why([] { TorchGrid({"fused"}, 1, 0.1); }), HasSubstr("/nowhere/python3"));
}

TEST_F(TorchGridTest, PythonWithoutTorch) {
  pretend(R"(echo '{"error": "No module named torch"}')");
  EXPECT_THAT(why([] { TorchGrid({"fused"}, 1, 0.1); }), HasSubstr("has no torch"));
}

TEST_F(TorchGridTest, ProgramThatSaysSomethingElse) {
  pretend("echo hello");
  EXPECT_THAT(why([] { TorchGrid({"fused"}, 1, 0.1); }), HasSubstr("'hello' is not"));
}

TEST_F(TorchGridTest, ProgramThatDiesBetweenCells) {
  pretend(R"(echo '{"torch": "9.9"}'; read line; exit 3)");
  TorchGrid grid({"fused"}, 1, 0.1);
  EXPECT_THAT(why([&] { grid.cell(1, 16); }), HasSubstr("has ended"));
}

TEST_F(TorchGridTest, AnswerWithoutRows) {
  pretend(R"(echo '{"torch": "9.9"}'; read line; echo '{}'; read line)");
  TorchGrid grid({"fused"}, 1, 0.1);
  EXPECT_THAT(why([&] { grid.cell(1, 16); }), HasSubstr("without rows"));
}

}  // namespace
}  // namespace gallop::lab
