// SPDX-License-Identifier: MIT
// Sweeps that are stopped before their end.
#include <csignal>

#include "cli/command.h"
#include "cli/common.h"
#include "folder.h"
#include "lab/database.h"

namespace gallop::test {
namespace {

using testing::HasSubstr;

struct Stopped {
  const Folder folder;
  const std::string db = folder / "r.db";
  int exit_code = 0;
  std::string out, errors;

  explicit Stopped(const std::vector<lab::Table>& tables) {
    cli::Output output;
    CLI::App app;
    output.add_to(app);
    output.keep_as(app, "bench step");
    app.parse("--db " + db, false);
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    exit_code = output.measure([&] {
      std::raise(SIGINT);
      return tables;
    });
    out = testing::internal::GetCapturedStdout();
    errors = testing::internal::GetCapturedStderr();
  }
};

TEST(Measure, WhatHadBeenMeasuredIsShownAndKept) {
  lab::Table some;
  some.rows.push_back(lab::Row().set("optimizer", "lion").end_config().set("median_ms", 1.5));
  const Stopped s(std::vector{some, lab::Table{"never begun", {}, {}, {}}});
  EXPECT_EQ(s.exit_code, 130);
  EXPECT_THAT(s.out, HasSubstr("lion"));
  EXPECT_THAT(s.out, HasSubstr("stopped: this is what had been measured until then"));
  EXPECT_THAT(s.out, testing::Not(HasSubstr("never begun")));
  if (!lab::Database::available()) return;
  EXPECT_THAT(run({"history", "--db", s.db, "--run", "1"}).out, HasSubstr("lion"));
}

TEST(Measure, NothingAtAllIsSaid) {
  const Stopped s(std::vector{lab::Table{"never begun", {}, {}, {}}});
  EXPECT_EQ(s.exit_code, 130);
  EXPECT_EQ(s.out, "");
  EXPECT_EQ(s.errors,
            "\ngallop: ends after the row at hand; ctrl-C again ends at once\n"
            "gallop: stopped before anything was measured\n");
}

}  // namespace
}  // namespace gallop::test
