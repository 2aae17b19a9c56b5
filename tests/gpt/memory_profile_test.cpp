// SPDX-License-Identifier: MIT
#include "gpt/memory_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "folder.h"

namespace gallop::gpt {
namespace {

using nlohmann::json;

TrainerOptions tiny(const std::string& changes = "") {
  TrainerOptions o;
  o.config = parse_model("nano:layers=3:width=32:heads=2:context=16" + changes);
  o.batch = 2;
  o.threads = 2;
  return o;
}

json trace(Trainer& trainer) { return json::parse(to_trace(profile_memory(trainer, "tiny"))); }

size_t highest_sum(const json& t) {
  size_t most = 0;
  for (const json& e : t.at("traceEvents")) {
    if (e.at("ph") != "C" || e.at("name") != "bytes by class") continue;
    size_t all = 0;
    for (const json& bytes : e.at("args")) all += bytes.get<size_t>();
    most = std::max(most, all);
  }
  return most;
}

TEST(MemoryProfile, HighestSumOfCountersIsTheTrainersTotal) {
  for (const bool recompute : {false, true}) {
    for (const char* optimizer : {"none", "adamw"}) {
      TrainerOptions o = tiny();
      o.checkpoints = recompute;
      o.optimizer = optimizer;
      Trainer trainer(o);
      const json t = trace(trainer);
      EXPECT_EQ(highest_sum(t), trainer.memory().total()) << optimizer << recompute;
      EXPECT_EQ(t.at("otherData").at("peak_bytes"), trainer.memory().total());
    }
  }
}

TEST(MemoryProfile, HasEveryBuffer) {
  Trainer trainer(tiny());
  std::multimap<std::string, std::tuple<int64_t, size_t>> left;
  for (const Buffer& b : trainer.model().arena().of(Model::training).buffers) {
    left.emplace(b.name, std::tuple(b.layer, b.bytes));
  }
  EXPECT_GT(left.size(), 30u);
  const json t = trace(trainer);
  for (const json& e : t.at("traceEvents")) {
    if (e.at("ph") != "X" || !e.contains("args")) continue;
    const auto [from, to] = left.equal_range(e.at("name"));
    const std::tuple wanted{e.at("args").at("layer").get<int64_t>(),
                            e.at("args").at("bytes").get<size_t>()};
    const auto it = std::find_if(from, to, [&](const auto& b) { return b.second == wanted; });
    ASSERT_NE(it, to) << e;
    left.erase(it);
  }
  EXPECT_TRUE(left.empty());
}

TEST(MemoryProfile, SlicesOfAThreadDoNotOverlap) {
  Trainer trainer(tiny());
  std::map<std::pair<int, int64_t>, std::vector<std::pair<int64_t, int64_t>>> threads;
  const json t = trace(trainer);
  for (const json& e : t.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    const int64_t from = e.at("ts");
    EXPECT_GT(e.at("dur").get<int64_t>(), 0);
    threads[{e.at("pid"), e.at("tid")}].emplace_back(from, from + e.at("dur").get<int64_t>());
  }
  for (auto& [thread, slices] : threads) {
    std::sort(slices.begin(), slices.end());
    for (size_t i = 1; i < slices.size(); ++i) {
      EXPECT_LE(slices[i - 1].second, slices[i].first) << thread.first << ' ' << thread.second;
    }
  }
}

TEST(MemoryProfile, BeginsAndEndsWithWhatIsThereAllTheTime) {
  Trainer trainer(tiny());
  const MemoryProfile p = profile_memory(trainer, "");
  const MemoryUse use = trainer.memory();
  EXPECT_EQ(sum(p.moments.front()),
            use[MemoryClass::parameters] + use[MemoryClass::gradients] + use[MemoryClass::state]);
  EXPECT_EQ(p.moments.front(), p.moments.back());
  EXPECT_GE(p.allocated(), sum(p.moments[p.peak]));
  EXPECT_GT(p.backward, 0u);
  EXPECT_LT(p.backward, p.moments.size());
}

TEST(MemoryProfile, OfAPlan) {
  Plan plan;
  plan.moments = 4;
  plan.bytes = 1024;
  plan.buffers = {{"a", MemoryClass::activations, 0, 300, 0, 1, 4},
                  {"b", MemoryClass::workspace, 1, 100, 512, 2, 3}};
  MemoryByClass fixed{};
  fixed[0] = 1000;
  const MemoryProfile p = profile_memory(plan, fixed);
  std::vector<size_t> sums;
  for (const MemoryByClass& m : p.moments) sums.push_back(sum(m));
  EXPECT_THAT(sums, testing::ElementsAre(1000, 1512, 1768, 1512, 1000, 1000));
  EXPECT_EQ(p.peak, 2u);
  EXPECT_EQ(p.backward, 0u);
  EXPECT_EQ(describe_layers(p), "layer 0: 0.0004883 MB; layer 1: 0 MB");
}

TEST(MemoryProfile, LayersThatKeepAsMuchAreNamedTogether) {
  Trainer trainer(tiny());
  const std::string text = describe_layers(profile_memory(trainer, ""));
  EXPECT_THAT(text, testing::HasSubstr("layers 0 to "));
  EXPECT_THAT(text, testing::HasSubstr("outside of them: "));
}

TEST(MemoryProfile, IsWrittenWholeOrNotAtAll) {
  const test::Folder folder;
  Trainer trainer(tiny());
  const MemoryProfile p = profile_memory(trainer, "a \"title\"\n");
  write_trace(p, folder / "trace.json");
  std::ifstream file(folder / "trace.json");
  EXPECT_EQ(json::parse(file).at("otherData").at("title"), "a \"title\"\n");
  EXPECT_THROW(write_trace(p, folder / "no/such/folder.json"), std::exception);
}

}  // namespace
}  // namespace gallop::gpt
