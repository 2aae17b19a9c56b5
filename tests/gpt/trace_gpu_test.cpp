// SPDX-License-Identifier: MIT
#include "gpt/trace_gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "gpt/trace_slices.h"

namespace gallop::gpt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

cuda::Activity kernel(const std::string& name, int64_t launched, int64_t begin, uint64_t node = 0,
                      uint32_t stream = 7) {
  return {name, begin, begin + 10, stream, node, launched};
}

Range range(const std::string& name, int64_t begin, int64_t end, int parent, Place place) {
  return {name, begin, end, parent, std::move(place)};
}

// A step kernel by kernel, with a kernel that only the first step has; one that records; and one
// that launches what was recorded.
Traced three_steps(const std::vector<uint64_t>& nodes) {
  Traced t;
  t.layers = 2;
  t.steps = 3;
  t.ranges = {
      range("step", 0, 100, -1, {1, -1, "", kNoLayer}),
      range("batch", 0, 100, 0, {1, 0, "", kNoLayer}),
      range("forward", 10, 50, 1, {1, 0, "forward", kNoLayer}),
      range("layer 0", 10, 30, 2, {1, 0, "forward", 0}),
      range("layer 1", 31, 50, 2, {1, 0, "forward", 1}),
      range("optimizer", 60, 90, 1, {1, 0, "optimizer", kNoLayer}),
      range("step", 200, 300, -1, {2, -1, "", kNoLayer}),
      range("batch", 200, 300, 6, {2, 0, "", kNoLayer}),
      range("forward", 210, 250, 7, {2, 0, "forward", kNoLayer}),
      range("step", 400, 420, -1, {3, -1, "", kNoLayer}),
      range("batch", 400, 420, 9, {3, 0, "", kNoLayer}),
  };
  std::vector<cuda::Activity> a = {kernel("tune", 11, 1000), kernel("norm", 12, 1010),
                                   kernel("gemm", 20, 1020), kernel("norm", 32, 1030),
                                   kernel("gemm", 40, 1040), kernel("adamw", 70, 1050),
                                   kernel("copy", 150, 1060)};
  const char* names[] = {"norm", "gemm", "norm", "gemm", "adamw"};
  for (const int64_t launched : {260, 410}) {
    for (size_t i = 0; i < 5; ++i) {
      a.push_back(
          kernel(names[i], launched, launched * 10 + static_cast<int64_t>(i) * 10, nodes[i], 9));
    }
  }
  t.kernels = place_kernels(a, t.ranges);
  return t;
}

std::vector<std::string> places(const Traced& t, int64_t step) {
  std::vector<std::string> all;
  for (const Kernel& k : t.kernels) {
    if (k.place.step != step) continue;
    all.push_back(k.activity.name + " " + k.place.phase + " " + std::to_string(k.place.layer));
  }
  return all;
}

TEST(TraceOfKernels, LaunchedOneByOneBelongToWhatTheHostWasAt) {
  const Traced t = three_steps({1, 2, 3, 4, 5});
  EXPECT_THAT(places(t, 1), ElementsAre("tune forward 0", "norm forward 0", "gemm forward 0",
                                        "norm forward 1", "gemm forward 1", "adamw optimizer -2"));
  EXPECT_THAT(places(t, 0), ElementsAre("copy  -2"));
}

TEST(TraceOfKernels, OfAGraphAreFoundAgainInTheFirstStep) {
  // By node, and where nodes are in no order, by time.
  for (const std::vector<uint64_t>& nodes :
       {std::vector<uint64_t>{1, 2, 3, 4, 5}, {9, 2, 7, 4, 5}}) {
    const Traced t = three_steps(nodes);
    for (int64_t step : {2, 3}) {
      EXPECT_THAT(places(t, step), ElementsAre("norm forward 0", "gemm forward 0", "norm forward 1",
                                               "gemm forward 1", "adamw optimizer -2"));
    }
  }
}

TEST(TraceOfKernels, AreInTheFileByStreamPhaseAndLayer) {
  const Traced t = three_steps({1, 2, 3, 4, 5});
  const json j = json::parse(to_json(t));
  std::map<std::pair<int, int64_t>, std::vector<std::pair<double, double>>> threads;
  std::map<std::string, int> named;
  for (const json& e : j.at("traceEvents")) {
    if (e.at("name") == "process_name" || e.at("name") == "thread_name") {
      ++named[e.at("args").at("name")];
    }
    if (e.at("ph") != "X" || e.at("pid") == 1) continue;
    threads[{e.at("pid"), e.at("tid")}].emplace_back(
        e.at("ts"), e.at("ts").get<double>() + e.at("dur").get<double>());
  }
  for (const char* name : {"host", "GPU, kernel by kernel", "GPU, recorded steps", "stream 7",
                           "stream 9", "phases", "layers"}) {
    EXPECT_GE(named[name], 1) << name;
  }
  for (auto& [thread, slices] : threads) {
    std::sort(slices.begin(), slices.end());
    for (size_t i = 1; i < slices.size(); ++i) {
      EXPECT_LE(slices[i - 1].second, slices[i].first + 1e-9) << thread.first << thread.second;
    }
  }
  const std::vector<Slice> recorded = slices_of(j, 3);
  EXPECT_EQ(pick(recorded, 3, "forward", "forward").size(), 1u);
  EXPECT_EQ(pick(recorded, 3, "layer 1, forward", "forward").size(), 1u);
  EXPECT_EQ(pick(recorded, 3, "gemm", "forward").size(), 2u);
  EXPECT_EQ(pick(slices_of(j, 1), 2, "batch: being recorded, then launched", "").size(), 1u);
  EXPECT_EQ(pick(slices_of(j, 1), 3, "batch: launch of the recorded step", "").size(), 1u);
}

TEST(TraceOfKernels, AreSummedUpByName) {
  const std::vector<std::string> notes = describe(three_steps({1, 2, 3, 4, 5}));
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_THAT(notes[0], HasSubstr("40.0 %  2 x gemm"));
  EXPECT_THAT(notes[0], HasSubstr("20.0 %  1 x adamw"));
  EXPECT_THAT(notes[1], HasSubstr("80.0 %  forward: layers 0 to 1 "));
}

TEST(TraceOfKernels, NamesAreAligned) {
  EXPECT_THAT(align({"a", "b", "c"}, {"a", "b", "c"}), ElementsAre(0, 1, 2));
  EXPECT_THAT(align({"a", "b", "c"}, {"x", "a", "y", "c"}), ElementsAre(1, -1, 3));
  EXPECT_THAT(align({"a", "b"}, {}), ElementsAre(-1, -1));
  EXPECT_THAT(align({"a", "a", "b", "a"}, {"a", "b", "z", "a"}), ElementsAre(0, -1, 1, 3));
}

TEST(TraceOfKernels, NamesAreShortened) {
  EXPECT_EQ(
      short_name("void gallop::gpt::cuda::(anonymous namespace)::norm_rows<float, 4>(X<int>)"),
      "norm_rows");
  EXPECT_EQ(short_name("nvjet_hsh_128x256"), "nvjet_hsh_128x256");
  EXPECT_EQ(short_name("void cutlass::Kernel2<cutlass::gemm<(int)3>::type>(Params)"), "Kernel2");
  EXPECT_EQ(short_name("copy"), "copy");
}

}  // namespace
}  // namespace gallop::gpt
