// SPDX-License-Identifier: MIT
// --trace of commands that train.
#include <filesystem>

#include "../gpt/trace_slices.h"
#include "cli/command.h"
#include "folder.h"

namespace gallop::gpt {
namespace {

using testing::HasSubstr;

constexpr const char* kModel = "nano:layers=3:width=32:heads=2:context=16";

TEST(TraceOption, OfBenchTrainIsOfOneConfiguration) {
  const test::Folder folder;
  const std::string path = folder / "trace.json";
  const std::vector<std::string> words = {"bench",   "train", "--model",  kModel, "--batch", "2",
                                          "--steps", "2",     "--warmup", "1",    "--trace", path};
  const test::Ran ran = test::run(words);
  EXPECT_EQ(ran.exit_code, 0) << ran.errors;
  EXPECT_THAT(ran.out, HasSubstr("the trace of 3 steps is in " + path));
  EXPECT_THAT(ran.out, HasSubstr("by phase and layer"));
  const json j = read(path);
  expect_layers(j, 3);
  const std::vector<Slice> all = slices_of(j, 1);
  const std::vector<Slice> warm = pick(all, 0, "warm-up", "");
  ASSERT_EQ(warm.size(), 1u);
  EXPECT_TRUE(pick(all, 1, "step", "")[0].within(warm[0]));
  EXPECT_FALSE(pick(all, 2, "step", "")[0].within(warm[0]));
}

TEST(TraceOption, OfBenchTrainIsRefusedBeforeAnythingRuns) {
  const test::Folder folder;
  test::expect_refused(
      {"bench", "train", "--model", kModel, "--batch", "1,2", "--trace", folder / "trace.json"},
      "a trace of 2 configurations, expected one");
  test::expect_refused({"bench", "train", "--model", kModel, "--trace", folder / "no/trace.json"},
                       "cannot write '" + folder / "no/trace.json");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

std::vector<std::string> train(const std::string& trace, const std::string& steps) {
  return {"train",
          "--model",
          "nano:layers=3:width=32:heads=2:context=16:vocabulary=16",
          "--data",
          "synthetic:vocabulary=16,classes=2,branching=3,tokens=100000,validation=5000",
          "--steps",
          steps,
          "--batch",
          "2",
          "--threads",
          "1",
          "--trace",
          trace};
}

TEST(TraceOption, OfTrainHasTheFirstStepsAndTheirData) {
  const test::Folder folder;
  const test::Ran ran = test::run(train(folder / "trace.json", "12"));
  EXPECT_EQ(ran.exit_code, 0) << ran.errors;
  EXPECT_THAT(ran.out, HasSubstr("the trace of 10 steps is in "));
  const json j = read(folder / "trace.json");
  expect_layers(j, 10);
  const std::vector<Slice> all = slices_of(j, 1);
  EXPECT_EQ(pick(all, 0, "data loading", "").size(), 10u);
  EXPECT_FALSE(pick(all, 0, "evaluation", "").empty());
}

TEST(TraceOption, OfTrainIsRefusedBeforeAnythingRuns) {
  const test::Folder folder;
  test::expect_refused(train(folder / "no/trace.json", "12"),
                       "cannot write '" + folder / "no/trace.json");
}

}  // namespace
}  // namespace gallop::gpt
