// SPDX-License-Identifier: MIT
#include "lab/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "folder.h"
#include "gallop/error.h"
#include "lab/page/parts.h"

namespace gallop::lab {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kInf = std::numeric_limits<double>::infinity();

Row trial(const char* optimizer, const char* stage, double lr, std::vector<double> losses) {
  Row row;
  row.set("stage", stage).set("workload", "nano").set("optimizer", optimizer).set("lr", lr);
  row.end_config().set("validation_loss", losses.empty() ? kInf : losses.back());
  std::vector<double> steps, seconds;
  for (size_t i = 0; i < losses.size(); ++i) {
    steps.push_back(10.0 * static_cast<double>(i + 1));
    seconds.push_back(0.5 * static_cast<double>(i + 1));
  }
  row.keep_samples("curve_step", steps).keep_samples("curve_s", seconds);
  row.keep_samples("curve_validation", losses);
  return row;
}

Row standing(const char* optimizer, double loss) {
  Row row;
  row.set("workload", "nano").set("optimizer", optimizer).end_config();
  row.set("validation_loss", loss).set("low", loss - 1).set("high", loss + 1);
  row.keep_samples("validation_loss", {loss, loss});
  return row;
}

TEST(PageParts, TablesCarryWhatIsReadAndWhatIsSortedBy) {
  Row row;
  row.set("name", "a").set("ms", 12345.678).set("miss", kInf).set("n", 3).set("none", nullptr);
  const Json part = table_part({"T", {row}, {"note"}, {}});
  EXPECT_EQ(part["columns"].size(), 5U);
  EXPECT_EQ(part["rows"][0][0], "a");
  EXPECT_EQ(part["rows"][0][1], Json({12345.7, "12,346"}));
  EXPECT_GT(part["rows"][0][2][0].get<double>(), 1e300);  // after all that are finite
  EXPECT_EQ(part["rows"][0][3], Json({3, "3"}));
  EXPECT_TRUE(part["rows"][0][4].is_null());
  EXPECT_EQ(part["notes"][0], "note");
}

TEST(PageParts, LabelsSayWhatDiffersAndNoMore) {
  Row a, b;
  a.set("model", "S").set("batch", 4).set("optimizer", "adamw").end_config().set("ms", 1.0);
  b.set("model", "S").set("batch", 8).set("optimizer", "lion").end_config().set("ms", 2.0);
  EXPECT_THAT(labels_of({a, b}), testing::ElementsAre("batch 4, adamw", "batch 8, lion"));
}

TEST(PageParts, ChartsAreMadeOnlyOfRowsThatHaveTheFields) {
  const std::vector<Row> none = {standing("adamw", 1)};
  EXPECT_TRUE(memory_part(none).is_null());
  EXPECT_TRUE(roofline_part(none).is_null());
  EXPECT_TRUE(heat_part(none).is_null());
  EXPECT_TRUE(memory_part({}).is_null());
  EXPECT_TRUE(race_parts({}, {}).empty());
}

TEST(PageParts, MemoryIsStackedByClass) {
  Row row = standing("adamw", 1);
  row.set("state_mb", 20.0).set("parameters_mb", 10.0).set("activations_mb", 0.0);
  Row state_alone = standing("sgd", 1);
  state_alone.set("state_mb", 20.0);
  const Json part = memory_part({row, standing("sgd", 1), state_alone});
  EXPECT_EQ(part["labels"].size(), 1U);
  ASSERT_EQ(part["series"].size(), 2U);  // of what nobody has there is none
  EXPECT_EQ(part["series"][0]["name"], "parameters");
  EXPECT_EQ(part["series"][1]["values"], Json::array({20}));
}

TEST(PageParts, RooflinesCompareWithACopyOfAsManyBytes) {
  Row row;
  row.set("optimizer", "adamw").set("elements", 1'000'000).end_config();
  row.set("bytes_per_element", 28.0).set("median_ms", 4.0).set("ceiling_gb_per_s", 14.0);
  const Json point = roofline_part({row})["points"][0];
  EXPECT_EQ(point["mb"], 28);
  EXPECT_EQ(point["ms"], 4);
  EXPECT_EQ(point["roof_ms"], 2);
}

TEST(PageParts, HeatMapsAreOrderedAndKnowWhatIsMissing) {
  const auto cell = [](int count, int size, double unfused, double multi) {
    Row row;
    row.set("num_params", count).set("param_size", size).end_config();
    return row.set("unfused_ms", unfused).set("multi_ms", multi);
  };
  const Json part = heat_part({cell(8, 100, 6, 2), cell(1, 100, 5, 1), cell(1, 10, 1, 2)});
  EXPECT_EQ(part["rows"], Json({1, 8}));
  EXPECT_EQ(part["columns"], Json({10, 100}));
  EXPECT_EQ(part["cells"], Json({{0.5, 5}, {nullptr, 3}}));
}

TEST(PageParts, CurvesAreMediansWithinTheRangeOfSeeds) {
  const Table board = {"Race", {standing("lion", 1), standing("adamw", 2)}, {}, {}};
  const std::vector<Json> parts = race_parts(
      board, {trial("adamw", "final", 1e-3, {5, 4, 3}),
              trial("adamw", "final", 1e-3, {6, 4.5, 3.5}), trial("adamw", "final", 1e-3, {9, 8}),
              trial("adamw", "final", 1e-3, {7, kInf}), trial("lion", "final", 1e-4, {2})});
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0]["kind"], "intervals");
  EXPECT_EQ(parts[0]["bars"][0]["name"], "lion");
  const Json& curves = parts[1]["curves"];
  ASSERT_EQ(curves.size(), 2U);
  EXPECT_EQ(curves[0]["name"], "lion");  // as on the leaderboard
  EXPECT_EQ(curves[1]["x"], Json({10, 20, 30}));
  EXPECT_EQ(curves[1]["middle"], Json({6.5, 4.5, 3.25}));
  EXPECT_EQ(curves[1]["low"], Json({5, 4, 3}));
  EXPECT_EQ(curves[1]["high"], Json({9, 8, 3.5}));
  EXPECT_EQ(parts[2]["curves"][1]["x"], Json({0.5, 1, 1.5}));
}

TEST(PageParts, CurvesEndWhereMostSeedsHaveEnded) {
  const std::vector<Json> parts =
      race_parts({}, {trial("sgd", "final", 1, {5, 4}), trial("sgd", "final", 1, {5}),
                      trial("sgd", "final", 1, {5})});
  EXPECT_EQ(parts.at(0)["curves"][0]["x"], Json::array({10}));
}

TEST(PageParts, SeedsOfDifferentSpeedAreReadAtTheSameTime) {
  const Row slow = trial("sgd", "final", 1, {4, 2});  // after 0.5 and 1 s
  const Row longer = trial("sgd", "final", 1, {4, 2, 1});
  Row fast;
  fast.set("stage", "final").set("workload", "nano").set("optimizer", "sgd").end_config();
  fast.keep_samples("curve_step", {10, 20}).keep_samples("curve_s", {0.25, 0.75});
  fast.keep_samples("curve_validation", {4, 2});
  const Json curve = race_parts({}, {slow, fast, longer}).at(1)["curves"][0];
  EXPECT_EQ(curve["x"], Json({0.5, 0.75, 1}));
  EXPECT_EQ(curve["middle"], Json({4, 3, 2}));  // of 4, 3, 4; of 3, 2, 3; of 2 and 2
  EXPECT_EQ(curve["low"], Json({3, 2, 2}));
}

TEST(PageParts, WhoIsThereWaitsForTheOthers) {
  Row early = trial("sgd", "final", 1, {4, 2});
  early.set("outcome", "reached");
  Row diverged = trial("sgd", "final", 1, {4, 9});
  diverged.set("outcome", "diverged");
  const Json curve =
      race_parts({}, {early, diverged, trial("sgd", "final", 1, {4, 4, 3})}).at(0)["curves"][0];
  EXPECT_EQ(curve["x"], Json({10, 20, 30}));
  EXPECT_EQ(curve["low"], Json({4, 2, 2}));
  EXPECT_EQ(curve["high"], Json({4, 9, 3}));
}

TEST(PageParts, TuningShowsWhatEachRateGave) {
  const std::vector<Json> parts =
      race_parts({}, {trial("sgd", "tuning", 0.1, {3}), trial("sgd", "tuning", 0.01, {4}),
                      trial("sgd", "tuning", 1, {})});
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_TRUE(parts[0]["log_x"].get<bool>());
  EXPECT_EQ(parts[0]["curves"][0]["x"], Json({0.01, 0.1}));  // and not what diverged
  EXPECT_EQ(parts[0]["curves"][0]["middle"], Json({4, 3}));
}

class PageTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!Database::available()) GTEST_SKIP() << "SKIPPED: this build has no SQLite";
  }
  void add(const std::string& kind, const std::string& command, const Table& table) {
    Store(path_, Store::Access::write).add(results_of(describe_origin(command, {}), kind, {table}));
  }
  Json data(const PageOptions& options = {}) const {
    return page_data(Store(path_, Store::Access::read), options);
  }

  const test::Folder folder_;
  const std::string path_ = folder_ / "results.db";
};

TEST_F(PageTest, ShowsRacesFirstAndTheNewestOfEveryKind) {
  add("suite cs336", "gallop suite cs336", {"old", {standing("a", 1)}, {}, {}});
  add("suite cs336", "gallop suite cs336 --again", {"new", {standing("a", 2)}, {"n"}, {}});
  add("race trial", "gallop race", {"", {trial("lion", "final", 1, {2, 1})}, {}, {}});
  add("race", "gallop race", {"Race: loss", {standing("lion", 1)}, {}, {}});
  add("bench step", "gallop bench step", {"", {standing("a", 1)}, {}, {}});
  const Json sections = data()["sections"];
  ASSERT_EQ(sections.size(), 5U);
  EXPECT_EQ(sections[0]["title"], "Race: loss");
  EXPECT_EQ(sections[0]["facts"]["command"], "gallop race");
  std::vector<std::string> kinds;
  for (const Json& part : sections[0]["parts"]) kinds.push_back(part["kind"]);
  EXPECT_THAT(kinds, testing::ElementsAre("table", "intervals", "curves", "curves"));
  EXPECT_EQ(sections[1]["title"], "new");
  EXPECT_EQ(sections[2]["title"], "bench step: a");
  EXPECT_EQ(sections[3]["parts"][0]["rows"].size(), 4U);  // suites that were not run
  EXPECT_EQ(sections[4]["parts"][0]["rows"].size(), 5U);

  const Json one = data({"T", {1}, false})["sections"];
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0]["title"], "old");
  EXPECT_THROW(data({"T", {99}, false}), Error);
}

TEST_F(PageTest, NothingInTheStoreBecomesMarkup) {
  const std::string evil = "</script><script>alert(1)</script><!--";
  add("bench step", evil, {evil, {standing(evil.c_str(), 1)}, {evil}, {}});
  const std::string html = page_html(data({evil, {}, false}));
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, Not(HasSubstr("</script><script>alert")));
  EXPECT_THAT(html, Not(HasSubstr("{{")));
}

TEST_F(PageTest, AsksNoNetworkForAnything) {
  add("race", "gallop race", {"Race", {standing("lion", 1)}, {}, {}});
  const std::string html = page_html(data());
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, Not(testing::ContainsRegex("<link[^>]*href=\"http")));
  EXPECT_THAT(html, Not(HasSubstr("@import")));
}

}  // namespace
}  // namespace gallop::lab
