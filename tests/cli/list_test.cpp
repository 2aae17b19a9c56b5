// SPDX-License-Identifier: MIT
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "folder.h"

namespace gallop::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json table(std::vector<std::string> words) {
  for (const char* w : {"--format", "json"}) words.emplace_back(w);
  const Ran ran = run(words);
  EXPECT_EQ(ran.exit_code, 0) << ran.errors;
  return json::parse(ran.out);
}
json row(const json& t, const std::string& parameters) {
  for (const json& r : t.at("rows")) {
    if (r.at("parameters") == parameters) return r;
  }
  ADD_FAILURE() << parameters;
  return {};
}

TEST(ListPolicy, HybridOverGpt2) {
  const json t = table({"list", "--policy", "hybrid"});
  const json wte = row(t, "wte.weight"), fc = row(t, "h.*.mlp.c_fc.weight"), all = row(t, "all");
  EXPECT_EQ(wte.at("state"), "fp32");
  EXPECT_EQ(wte.at("saved_bytes"), 0);
  EXPECT_EQ(fc.at("state"), "8bit");
  EXPECT_EQ(fc.at("count"), 12);
  EXPECT_EQ(fc.at("role"), "hidden");
  EXPECT_EQ(fc.at("shape"), "768x3072");
  const int64_t n = int64_t{12} * 768 * 3072, bytes = 2 * (n + n / 256 * 4);
  EXPECT_EQ(fc.at("state_bytes"), bytes);
  EXPECT_EQ(fc.at("saved_bytes"), 8 * n - bytes);
  EXPECT_EQ(all.at("count"), 148);
  int64_t sum = 0;
  for (const json& r : t.at("rows")) sum += r.at("state_bytes").get<int64_t>();
  EXPECT_EQ(sum, 2 * all.at("state_bytes").get<int64_t>());
}

TEST(ListPolicy, OtherOptimizersAndShapes) {
  const Folder folder;
  const std::string file = folder / "shapes";
  std::ofstream(file) << "a.0.w 300x256 hidden\na.1.w 300x256 hidden\nb 200x100 hidden\nc 100\n";
  const json lamb = table({"list", "lamb", "--policy", "8bit", "--shapes", file});
  EXPECT_EQ(row(lamb, "a.*.w").at("state"), "8bit");
  EXPECT_EQ(row(lamb, "a.*.w").at("count"), 2);
  EXPECT_EQ(row(lamb, "c").at("state"), "fp32");
  const json muon =
      table({"list", "--optimizer", "muon", "--policy", "4bit", "--shapes", "gpt2:1x100"});
  EXPECT_EQ(row(muon, "h.0.attn.c_attn.weight").at("state"), "fp32");
  EXPECT_EQ(row(muon, "wte.weight").at("state"), "4bit");
  EXPECT_THAT(run({"list", "muon", "--policy", "4bit", "--shapes", "gpt2:1x100"}).out,
              HasSubstr("multiple of 256"));
  const json exact = table({"list", "adafactor", "--policy", "8bit"});
  EXPECT_EQ(row(exact, "all").at("saved_bytes"), 0);
}

// Nothing of it is touched.
TEST(ListPolicy, BigModelsTakeNoMemory) {
  EXPECT_EQ(row(table({"list", "--policy", "8bit", "--shapes", "gpt2:48x6400"}), "all")
                    .at("state_bytes")
                    .get<int64_t>() > int64_t{40'000'000'000},
            true);
}

TEST(ListPolicy, BadInputIsOneSentence) {
  expect_refused({"list", "--policy", "9bit"}, "'9bit' is unknown");
  expect_refused({"list", "--policy", ""}, "unknown");
  expect_refused({"list", "--policy", "8bit,norm=fp32"}, "expected it at the end");
  expect_refused({"list", "--policy", "8bit", "--shapes", "/no/file"}, "no such file");
  expect_refused({"list", "--policy", "8bit", "--shapes", "gpt2:1"}, "gpt2:LAYERSxWIDTH");
  expect_refused({"list", "--policy", "8bit", "--optimizer", "zz"}, "'zz' is unknown");
  expect_refused({"list", "--shapes", "gpt2:1x8"}, "--policy");
}

TEST(List, BytesOfStateFormats) {
  const json listed = table({"list"});
  for (const json& r : listed.at("rows")) {
    if (r.at("optimizer") != "adamw") continue;
    EXPECT_EQ(r.at("bytes_fp32"), 28);
    EXPECT_EQ(r.at("bytes_fp32_state_bf16"), 20);
    EXPECT_EQ(r.at("bytes_fp32_state_8bit"), 16.0625);
    EXPECT_EQ(r.at("bytes_bf16_state_8bit"), 10.0625);
  }
  EXPECT_THAT(run({"list", "adamw"}).out, HasSubstr("state 8bit: 16.06 bytes"));
}

}  // namespace
}  // namespace gallop::test
