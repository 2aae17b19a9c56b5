// SPDX-License-Identifier: MIT
#include "gpt/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "folder.h"
#include "gallop/error.h"
#include "gpt/fixture.h"
#include "gpt/trace_slices.h"
#include "gpt/trainer.h"

namespace gallop::gpt {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kModel = "nano:layers=3:width=32:heads=2:context=16";
constexpr int64_t kLayers = 3;

TrainerOptions tiny() {
  TrainerOptions o;
  o.config = parse_model(kModel);
  o.batch = 2;
  o.threads = 2;
  return o;
}

TraceOptions to(const std::string& path, int64_t steps = 10) {
  TraceOptions o;
  o.path = path;
  o.title = "a \"title\"\n";
  o.layers = kLayers;
  o.steps = steps;
  return o;
}

void take_steps(Trainer& trainer, int count) {
  std::vector<data::Batch> batches;
  for (int64_t i = 0; i < trainer.options().accumulation; ++i) {
    batches.push_back(random_batch(trainer.options().config, 2, 16));
  }
  for (int i = 0; i < count; ++i) trainer.step(batches);
}

TEST(Trace, HasEveryLayerOfEveryStepWithinItsPhase) {
  const test::Folder folder;
  for (const bool recompute : {false, true}) {
    TrainerOptions o = tiny();
    o.checkpoints = recompute;
    Trainer trainer(o);
    Trace trace(to(folder / "trace.json"));
    trainer.ranges().keep_in(&trace);
    take_steps(trainer, 3);
    trainer.evaluate(random_batch(o.config, 2, 16));
    const Traced traced = trace.finish();
    EXPECT_EQ(traced.steps, 3);
    const json j = read(folder / "trace.json");
    EXPECT_EQ(j.at("otherData").at("title"), "a \"title\"\n");
    expect_layers(j, 3);
    EXPECT_THAT(slices_of(j, 1), Contains(testing::Field(&Slice::name, "evaluation")));
  }
}

TEST(Trace, LayersAreNumbersAndTheRestHasNames) {
  const test::Folder folder;
  Trainer trainer(tiny());
  Trace trace(to(folder / "trace.json"));
  trainer.ranges().keep_in(&trace);
  take_steps(trainer, 1);
  trace.finish();
  const std::vector<Slice> all = slices_of(read(folder / "trace.json"), 1);
  EXPECT_EQ(pick(all, 1, "layer 2", "backward").at(0).layer, 2);
  EXPECT_EQ(pick(all, 1, "head", "forward").at(0).layer, "head");
  EXPECT_EQ(pick(all, 1, "embedding", "forward").at(0).layer, "embedding");
  EXPECT_TRUE(pick(all, 1, "forward", "forward").at(0).layer.is_null());
}

TEST(Trace, HasEveryBatchOfAStep) {
  const test::Folder folder;
  TrainerOptions o = tiny();
  o.accumulation = 3;
  Trainer trainer(o);
  Trace trace(to(folder / "trace.json"));
  trainer.ranges().keep_in(&trace);
  take_steps(trainer, 2);
  trace.finish();
  expect_layers(read(folder / "trace.json"), 2, 3);
}

TEST(Trace, KeepsNoMoreStepsThanAsked) {
  const test::Folder folder;
  Trainer trainer(tiny());
  Trace trace(to(folder / "trace.json", 2));
  trainer.ranges().keep_in(&trace);
  take_steps(trainer, 1);
  EXPECT_FALSE(trace.full());
  take_steps(trainer, 3);
  EXPECT_TRUE(trace.full());
  const Traced traced = trace.finish();
  take_steps(trainer, 1);
  EXPECT_EQ(traced.steps, 2);
  expect_layers(read(folder / "trace.json"), 2);
}

TEST(Trace, DoesNotChangeWhatIsComputed) {
  const test::Folder folder;
  Trainer plain(tiny()), watched(tiny());
  Trace trace(to(folder / "trace.json"));
  watched.ranges().keep_in(&trace);
  take_steps(plain, 2);
  take_steps(watched, 2);
  EXPECT_EQ(plain.loss(), watched.loss());
}

TEST(Trace, LeavesNothingUnlessItIsFinished) {
  const test::Folder folder;
  { const Trace trace(to(folder / "trace.json")); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THROW(Trace(to(folder / "no/such/folder.json")), Error);
  EXPECT_THROW(Trace(to(folder.path())), Error);
}

TEST(Trace, SaysWhatTakesTheTime) {
  const test::Folder folder;
  Trainer trainer(tiny());
  Trace trace(to(folder / "trace.json"));
  trainer.ranges().keep_in(&trace);
  take_steps(trainer, 2);
  EXPECT_THAT(describe(trace.finish()),
              ElementsAre(testing::AllOf(HasSubstr("time of the host by phase and layer"),
                                         HasSubstr("forward: embedding "),
                                         HasSubstr("layers 0 to 2 "), HasSubstr("%  optimizer"))));
  EXPECT_THAT(describe(Traced()), IsEmpty());
}

}  // namespace
}  // namespace gallop::gpt
