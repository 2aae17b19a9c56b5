// SPDX-License-Identifier: MIT
#include "gpt/planned.h"

#include <gtest/gtest.h>

#include <functional>

#include "gallop/error.h"
#include "gpt/trainer_parts.h"

namespace gallop::gpt {
namespace {

TrainerOptions tiny(const std::string& model = "nano:layers=3:width=64:heads=2:context=16") {
  TrainerOptions o;
  o.config = parse_model(model);
  o.batch = 2;
  o.threads = 2;
  return o;
}

void expect_as_taken(const TrainerOptions& o, const std::string& what) {
  Trainer trainer(o);
  const MemoryUse taken = trainer.memory();
  const Planned planned = plan_training(o);
  for (int c = 0; c < kMemoryClasses; ++c) {
    const auto cls = static_cast<MemoryClass>(c);
    EXPECT_EQ(planned.peak[cls], taken[cls]) << what << ", " << to_string(cls);
  }
  EXPECT_EQ(planned_memory(o).total(), taken.total()) << what;
  EXPECT_EQ(planned.allocated, taken[MemoryClass::parameters] + taken[MemoryClass::gradients] +
                                   taken[MemoryClass::state] + trainer.model().arena().bytes())
      << what;
}

TEST(Planned, IsWhatATrainerTakes) {
  for (const char* optimizer : {"none", "adam", "adan", "adamw", "lion", "muon", "adafactor"}) {
    for (const char* state : {"fp32", "8bit", "hybrid"}) {
      TrainerOptions o = tiny();
      o.optimizer = optimizer;
      o.state = parse_state_policy(state);
      expect_as_taken(o, std::string(optimizer) + " with " + state);
    }
  }
}

TEST(Planned, InEveryWayToTrain) {
  const std::pair<const char*, std::function<void(TrainerOptions&)>> ways[] = {
      {"naive", [](TrainerOptions& o) { o.attention = Attention::naive; }},
      {"recomputed", [](TrainerOptions& o) { o.checkpoints = true; }},
      {"accumulated", [](TrainerOptions& o) { o.accumulation = 3; }},
      {"eager", [](TrainerOptions& o) { o.compiled = false; }},
      {"fp64", [](TrainerOptions& o) { o.compute = Compute::fp64; }},
      {"a shorter context", [](TrainerOptions& o) { o.time = 5; }},
      {"logits in pieces", [](TrainerOptions& o) { o.logits_bytes = 4096; }},
      {"all decayed", [](TrainerOptions& o) { o.decay_vectors = true; }},
      {"with a knob",
       [](TrainerOptions& o) {
         o.hyper = {{"amsgrad", 1}};
       }},
      {"one thread", [](TrainerOptions& o) { o.threads = 1; }}};
  for (const char* model : {"nano:layers=3:width=64:heads=2:context=16",
                            "S:layers=2:heads=3:width=12:hidden=10:vocabulary=17:context=9"}) {
    for (const auto& [what, change] : ways) {
      TrainerOptions o = tiny(model);
      change(o);
      expect_as_taken(o, std::string(what) + ", " + model);
    }
  }
}

TEST(Planned, NeedsNoneOfTheMemory) {
  TrainerOptions o;
  o.config = parse_model("10B");
  o.batch = 64;
  o.optimizer = "adan";
  const MemoryUse use = planned_memory(o);
  const auto parameters = static_cast<size_t>(parameter_count(o.config));
  EXPECT_GE(use[MemoryClass::parameters], 4 * parameters);
  EXPECT_GE(use[MemoryClass::state], 16 * parameters);
  EXPECT_GT(use.total(), size_t{1} << 38);
}

TEST(Planned, SaysWhatATrainerWouldSay) {
  const auto refusal = [](const TrainerOptions& o, auto make) -> std::string {
    try {
      make(o);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  const std::function<void(TrainerOptions&)> mistakes[] = {
      [](TrainerOptions& o) { o.time = 17; },
      [](TrainerOptions& o) { o.batch = 0; },
      [](TrainerOptions& o) { o.accumulation = 0; },
      [](TrainerOptions& o) { o.optimizer = "no such rule"; },
      [](TrainerOptions& o) {
        o.hyper = {{"lr", -1}};
      },
      [](TrainerOptions& o) { o.compute = Compute::tf32; }};
  for (const auto& mistake : mistakes) {
    TrainerOptions o = tiny();
    mistake(o);
    const std::string said = refusal(o, [](const TrainerOptions& t) { planned_memory(t); });
    EXPECT_EQ(said, refusal(o, [](const TrainerOptions& t) { Trainer trainer(t); }));
    EXPECT_NE(said, "accepted");
  }
}

// What the suite says of single and multi access.
TEST(Planned, IsTheSameForOneTensorAtATimeAndAllAtOnce) {
  for (const char* optimizer : {"adam", "adan"}) {
    TrainerOptions o = tiny();
    o.optimizer = optimizer;
    const MemoryUse planned = planned_memory(o);
    for (Mode mode : {Mode::single, Mode::multi}) {
      Trainer trainer(o);
      Options options = optimizer_options(o);
      options.mode = mode;
      Optimizer other(optimizer, options);
      for (const ParamGroup& group : param_groups(o, trainer.model())) {
        other.add_group(group.params, group.options);
      }
      other.step();
      EXPECT_EQ(static_cast<size_t>(other.state_bytes()), planned[MemoryClass::state]);
      EXPECT_EQ(trainer.memory().total(), planned.total());
    }
  }
}

}  // namespace
}  // namespace gallop::gpt
