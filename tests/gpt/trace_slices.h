// SPDX-License-Identifier: MIT
// A trace's file, read back.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gallop::gpt {

using nlohmann::json;

struct Slice {
  std::string name, phase;
  json layer;
  int64_t step = 0, begin = 0, end = 0;  // ns
  bool within(const Slice& other) const { return other.begin <= begin && end <= other.end; }
};

inline json read(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

inline std::vector<Slice> slices_of(const json& trace, int process) {
  std::vector<Slice> all;
  for (const json& e : trace.at("traceEvents")) {
    if (e.at("ph") != "X" || e.at("pid") != process) continue;
    const json& args = e.at("args");
    const auto ns = [&](const char* key) {
      return static_cast<int64_t>(std::llround(e.at(key).get<double>() * 1e3));
    };
    EXPECT_GE(ns("dur"), 0) << e;
    EXPECT_GE(ns("ts"), 0) << e;
    all.push_back({e.at("name"), args.value("phase", ""), args.value("layer", json()),
                   args.value("step", int64_t{0}), ns("ts"), ns("ts") + ns("dur")});
  }
  return all;
}

inline std::vector<Slice> pick(const std::vector<Slice>& all, int64_t step, const std::string& name,
                               const std::string& phase) {
  std::vector<Slice> some;
  for (const Slice& s : all) {
    if (s.step == step && s.name == name && s.phase == phase) some.push_back(s);
  }
  return some;
}

// Of a model of three layers: every part has one slice in each phase of each batch, within that
// phase's.
inline void expect_layers(const json& trace, int64_t steps, size_t batches = 1) {
  const std::vector<Slice> all = slices_of(trace, 1);
  for (int64_t step = 1; step <= steps; ++step) {
    ASSERT_THAT(pick(all, step, "step", ""), testing::SizeIs(1));
    const Slice whole = pick(all, step, "step", "")[0];
    ASSERT_THAT(pick(all, step, "optimizer", "optimizer"), testing::SizeIs(1));
    EXPECT_TRUE(pick(all, step, "optimizer", "optimizer")[0].within(whole));
    for (const std::string phase : {"forward", "backward"}) {
      const std::vector<Slice> around = pick(all, step, phase, phase);
      ASSERT_EQ(around.size(), batches);
      for (const char* part : {"embedding", "layer 0", "layer 1", "layer 2", "head"}) {
        const std::vector<Slice> parts = pick(all, step, part, phase);
        ASSERT_EQ(parts.size(), batches) << phase << ' ' << part;
        for (size_t i = 0; i < batches; ++i) {
          EXPECT_TRUE(parts[i].within(around[i]) && around[i].within(whole)) << part;
        }
      }
    }
  }
  EXPECT_TRUE(pick(all, steps + 1, "step", "").empty());
}

}  // namespace gallop::gpt
