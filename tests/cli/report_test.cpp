// SPDX-License-Identifier: MIT
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/command.h"
#include "folder.h"
#include "lab/database.h"

namespace gallop::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ReportTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!lab::Database::available()) GTEST_SKIP() << "SKIPPED: this build has no SQLite";
  }
  const Folder folder_;
  const std::string db_ = folder_ / "r.db", page_ = folder_ / "page.html";
};

TEST_F(ReportTest, IsAFileWithWhatWasMeasured) {
  ASSERT_EQ(run({"bench", "precision", "--db", db_}).exit_code, 0);
  const Ran ran = run({"report", "--db", db_, "-o", page_, "--title", "Tuesday & co"});
  EXPECT_EQ(ran.exit_code, 0) << ran.errors;
  EXPECT_THAT(ran.out, HasSubstr(page_));
  std::ifstream in(page_);
  const std::string html((std::istreambuf_iterator<char>(in)), {});
  EXPECT_THAT(html, HasSubstr("<title>Tuesday &amp; co</title>"));
  EXPECT_THAT(html, HasSubstr("gallop bench precision"));
  EXPECT_EQ(run({"report", "--db", db_, "-o", page_, "--run", "1"}).exit_code, 0);
}

TEST_F(ReportTest, BadInputIsNamedAndWritesNothing) {
  expect_refused({"report", "--db", db_, "-o", page_}, "there is no results store");
  ASSERT_EQ(run({"bench", "precision", "--db", db_}).exit_code, 0);
  expect_refused({"report", "--db", db_, "-o", page_, "--run", "7"}, "has no run 7");
  EXPECT_FALSE(fs::exists(page_));
  expect_refused({"report", "--db", db_, "-o", folder_ / "none/page.html"}, "none/page.html");
}

TEST_F(ReportTest, ServeSaysWhatIsWrongBeforeItBegins) {
  expect_refused({"serve", "--db", db_, "--port", "70000"}, "70000");
  std::ofstream(folder_ / "text") << std::string(5000, 'x');
  expect_refused({"serve", "--db", folder_ / "text", "--port", "0"}, "is no results store");
}

}  // namespace
}  // namespace gallop::test
