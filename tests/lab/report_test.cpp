// SPDX-License-Identifier: MIT
#include "lab/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "folder.h"
#include "gallop/error.h"

namespace gallop::lab {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Table bench_table() {
  Table table;
  table.title = "AdamW step";
  table.rows = {
      Row().set("name", "fused").set("n", 1048576).set("median_ms", 0.4113).set("status", "pass"),
      Row().set("name", "naïve").set("n", 4096).set("median_ms", 0.00853149).set("status", "fail"),
      Row().set("name", "cuda").set("n", 1048576).set("status", "skip")};
  table.notes = {"one thread", "no GPU"};
  return table;
}

// A table whose only cell is the value.
std::string shown(const Value& value) {
  Table table;
  table.rows = {Row().set("v", value)};
  const std::string text = render(table, Format::table, false);
  const size_t start = text.find_first_not_of(' ', text.rfind('\n', text.size() - 2) + 1);
  return text.substr(start, text.size() - start - 1);
}

TEST(ParseFormat, KnowsTheFourNames) {
  EXPECT_EQ(parse_format("table"), Format::table);
  EXPECT_EQ(parse_format("markdown"), Format::markdown);
  EXPECT_EQ(parse_format("csv"), Format::csv);
  EXPECT_EQ(parse_format("json"), Format::json);
}

TEST(ParseFormat, NamesTheUnknownFormatAndTheKnownOnes) {
  try {
    parse_format("xml");
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "unknown output format 'xml', expected table, markdown, csv or json");
  }
}

TEST(RenderTable, AlignsNumbersRightAndTextLeftWithUnicodeAndMissingCells) {
  EXPECT_EQ(render(bench_table(), Format::table, false),
            "AdamW step\n"
            "\n"
            "name           n  median_ms  status\n"
            "-----  ---------  ---------  ------\n"
            "fused  1,048,576     0.4113  pass\n"
            "naïve       4096   0.008531  fail\n"
            "cuda   1,048,576          -  skip\n"
            "\n"
            "note: one thread\n"
            "note: no GPU\n");
}

TEST(RenderTable, ColoursTheStatusTextAndNothingElse) {
  Table table;
  table.rows = {Row().set("status", "pass").set("v", "pass"), Row().set("status", "ok").set("v", 1),
                Row().set("status", "fail"), Row().set("status", "skip"),
                Row().set("status", "other")};
  EXPECT_EQ(render(table, Format::table, true),
            "status  v\n"
            "------  ----\n"
            "\x1b[32mpass\x1b[0m    pass\n"
            "\x1b[32mok\x1b[0m      1\n"
            "\x1b[31mfail\x1b[0m    -\n"
            "\x1b[33mskip\x1b[0m    -\n"
            "other   -\n");
  EXPECT_EQ(render(table, Format::table, false).find('\x1b'), std::string::npos);
}

TEST(RenderTable, ShowsOnlyTheChosenColumnsInTheirOrder) {
  Table table = bench_table();
  table.title.clear();
  table.notes.clear();
  table.columns = {"median_ms", "name", "absent"};
  EXPECT_EQ(render(table, Format::table, false),
            "median_ms  name   absent\n"
            "---------  -----  ------\n"
            "   0.4113  fused  -\n"
            " 0.008531  naïve  -\n"
            "        -  cuda   -\n");
}

TEST(RenderTable, KeepsControlCharactersOffTheTerminalAndIndentsLongNotes) {
  Table table;
  table.rows = {Row().set("a", "x\ny\tz\x1b[2J").set("b", 1)};
  table.notes = {"first\nsecond"};
  EXPECT_EQ(render(table, Format::table, false),
            "a          b\n"
            "---------  -\n"
            "x y z [2J  1\n"
            "\n"
            "note: first\n"
            "      second\n");
}

TEST(RenderTable, SaysSoWhenThereAreNoRows) {
  Table table;
  EXPECT_EQ(render(table, Format::table, false), "(no rows)\n");
  table.columns = {"a", "bc"};
  EXPECT_EQ(render(table, Format::table, false), "a  bc\n-  --\n(no rows)\n");
}

TEST(RenderTable, RoundsDoublesToFourDigitsWithoutTrailingZeros) {
  EXPECT_EQ(shown(0.0085312), "0.008531");
  EXPECT_EQ(shown(12.3), "12.3");
  EXPECT_EQ(shown(1.0 / 3), "0.3333");
  EXPECT_EQ(shown(-2.5), "-2.5");
  EXPECT_EQ(shown(150.0), "150");
  EXPECT_EQ(shown(999.96), "1000");
  EXPECT_EQ(shown(999.9999999999999), "1000");
  EXPECT_EQ(shown(1234.4), "1234");
  EXPECT_EQ(shown(9999.7), "10,000");
  EXPECT_EQ(shown(-1234567.8), "-1,234,568");
  EXPECT_EQ(shown(0.0), "0");
  EXPECT_EQ(shown(3.21987e-7), "3.22e-07");
  EXPECT_EQ(shown(1.5e15), "1.5e+15");
  EXPECT_EQ(shown(kNan), "nan");
  EXPECT_EQ(shown(kInf), "inf");
  EXPECT_EQ(shown(-kInf), "-inf");
}

TEST(RenderTable, SeparatesThousandsOfIntegersFromTenThousandOn) {
  EXPECT_EQ(shown(int64_t{9999}), "9999");
  EXPECT_EQ(shown(int64_t{10000}), "10,000");
  EXPECT_EQ(shown(int64_t{-123456}), "-123,456");
  EXPECT_EQ(shown(INT64_MIN), "-9,223,372,036,854,775,808");
}

TEST(RenderTable, ShowsBoolsAsYesAndNoAndNoValueAsADash) {
  EXPECT_EQ(shown(true), "yes");
  EXPECT_EQ(shown(false), "no");
  EXPECT_EQ(shown(Value()), "-");
  EXPECT_EQ(shown(std::string()), "-");
}

TEST(RenderMarkdown, WritesAGithubTableWithNotesAsAList) {
  EXPECT_EQ(render(bench_table(), Format::markdown, false),
            "### AdamW step\n"
            "\n"
            "| name  |         n | median_ms | status |\n"
            "| :---- | --------: | --------: | :----- |\n"
            "| fused | 1,048,576 |    0.4113 | pass   |\n"
            "| naïve |      4096 |  0.008531 | fail   |\n"
            "| cuda  | 1,048,576 |         - | skip   |\n"
            "\n"
            "- one thread\n"
            "- no GPU\n");
}

TEST(RenderMarkdown, EscapesPipesNewlinesAndActiveCharactersInCells) {
  Table table;
  table.rows = {Row().set("a|b", "x|y\r\nz").set("n", 1),
                Row().set("a|b", "v<T> \\ *`").set("n", 2)};
  table.notes = {"two\nlines"};
  EXPECT_EQ(render(table, Format::markdown, true),
            R"(| a\|b          |   n |
| :------------ | --: |
| x\|y<br>z     |   1 |
| v\<T> \\ \*\` |   2 |

- two
  lines
)");
}

TEST(RenderMarkdown, SaysSoWhenThereAreNoRows) {
  Table table;
  EXPECT_EQ(render(table, Format::markdown, false), "No rows.\n");
  table.columns = {"a"};
  EXPECT_EQ(render(table, Format::markdown, false), "| a   |\n| :-- |\n\nNo rows.\n");
}

TEST(RenderCsv, QuotesAsRfc4180AndLeavesMissingFieldsEmpty) {
  Table table;
  table.title = "ignored";
  table.rows = {Row().set("name", "a,b").set("say \"hi\"", "she said \"no\"").set("n", 1048576),
                Row().set("name", "two\nlines").set("flag", true),
                Row().set("name", "naïve").set("say \"hi\"", "").set("n", Value())};
  table.columns = {"name"};
  EXPECT_EQ(render(table, Format::csv, true),
            "name,\"say \"\"hi\"\"\",n,flag\r\n"
            "\"a,b\",\"she said \"\"no\"\"\",1048576,\r\n"
            "\"two\nlines\",,,true\r\n"
            "naïve,\"\",,\r\n");
}

TEST(RenderCsv, KeepsEveryDigitOfADouble) {
  Table table;
  for (const double value : {0.1, 1.0 / 3, 3.0, 1e22, -2.5e-9, kNan, kInf, -kInf}) {
    table.rows.push_back(Row().set("v", value));
  }
  EXPECT_EQ(render(table, Format::csv, false),
            "v\r\n0.1\r\n0.3333333333333333\r\n3\r\n1e+22\r\n-2.5e-09\r\nnan\r\ninf\r\n-inf\r\n");
}

TEST(RenderCsv, WritesNoBlankLineForAMissingValueInTheOnlyColumn) {
  Table table;
  table.rows = {Row().set("v", 1), Row(), Row().set("v", 2)};
  EXPECT_EQ(render(table, Format::csv, false), "v\r\n1\r\n\"\"\r\n2\r\n");
}

TEST(RenderCsv, OfNoRowsIsTheHeaderOfTheChosenColumns) {
  Table table;
  EXPECT_EQ(render(table, Format::csv, false), "");
  table.columns = {"a", "b"};
  EXPECT_EQ(render(table, Format::csv, false), "a,b\r\n");
}

TEST(RenderJson, WritesOneObjectALine) {
  Table table = bench_table();
  table.columns = {"name"};
  EXPECT_EQ(render(table, Format::json, true), R"({
  "title": "AdamW step",
  "rows": [
    {"name": "fused", "n": 1048576, "median_ms": 0.4113, "status": "pass"},
    {"name": "naïve", "n": 4096, "median_ms": 0.00853149, "status": "fail"},
    {"name": "cuda", "n": 1048576, "status": "skip"}
  ],
  "notes": [
    "one thread",
    "no GPU"
  ]
}
)");
}

TEST(RenderJson, HoldsOnlyRowsWithoutTitleAndNotes) {
  Table table;
  EXPECT_EQ(render(table, Format::json, false), "{\n  \"rows\": []\n}\n");
  table.rows = {Row()};
  EXPECT_EQ(render(table, Format::json, false), "{\n  \"rows\": [\n    {}\n  ]\n}\n");
}

TEST(RenderJson, ReadsBackAsTheSameValues) {
  const std::string text = "quote \" comma , pipe | newline \n unicode µ € \t end";
  const double exact = std::nextafter(0.1, 1.0);
  Table table;
  table.rows = {Row()
                    .set("text", text)
                    .set("double", exact)
                    .set("tiny", std::numeric_limits<double>::denorm_min())
                    .set("whole", 3.0)
                    .set("integer", INT64_MAX)
                    .set("flag", false)
                    .set("nothing", Value())
                    .set("nan", kNan)
                    .set("inf", -kInf)};
  const auto json = nlohmann::ordered_json::parse(render(table, Format::json, false));
  EXPECT_EQ(json, nlohmann::ordered_json::parse(R"({"rows": [{
      "text": "quote \" comma , pipe | newline \n unicode µ € \t end",
      "double": 0.10000000000000002, "tiny": 5e-324, "whole": 3.0, "integer": 9223372036854775807,
      "flag": false, "nothing": null, "nan": null, "inf": null}]})"));
  EXPECT_EQ(json["rows"][0]["double"].get<double>(), exact);
  EXPECT_TRUE(json["rows"][0]["whole"].is_number_float());
}

TEST(RenderJson, SurvivesBytesThatAreNoUtf8) {
  Table table;
  table.rows = {Row().set("v", "a\xff!")};
  const auto json = nlohmann::ordered_json::parse(render(table, Format::json, false));
  EXPECT_EQ(json["rows"][0]["v"], "a\xEF\xBF\xBD!");
}

TEST(Emit, WritesTheRenderedTextToTheFile) {
  const test::Folder folder;
  const std::string path = folder / "table.csv";
  emit(bench_table(), Format::csv, path);
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  EXPECT_EQ(text.str(), render(bench_table(), Format::csv, false));
}

TEST(Emit, WithoutAPathWritesToStdoutUncolouredWhenThatIsNoTerminal) {
  testing::internal::CaptureStdout();
  emit(bench_table(), Format::table, "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), render(bench_table(), Format::table, false));
}

}  // namespace
}  // namespace gallop::lab
