// SPDX-License-Identifier: MIT
// Updates while backward goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gallop/error.h"
#include "gpt/planned.h"
#include "gpt/tiny_run.h"

namespace gallop::gpt {
namespace {

TrainerOptions options(const std::string& model, bool overlap) {
  TrainerOptions o = tiny_trainer();
  o.config = parse_model(model);
  o.clip_norm = 0;
  o.overlap = overlap;
  return o;
}

void train(Trainer& trainer) {
  RunOptions r;
  r.steps = 4;
  run(trainer, tiny_corpus(), r);
}

constexpr char kDeep[] = "nano:layers=7:width=32:heads=2:context=16:vocabulary=16";
constexpr char kUntied[] = "S:layers=5:width=32:hidden=48:heads=2:context=16:vocabulary=16:tied=no";

TEST(Overlap, GivesTheSameBits) {
  for (const char* model : {kTinyModel, kDeep, kUntied}) {
    for (const char* optimizer : {"adamw", "lion", "adafactor"}) {
      TrainerOptions o = options(model, false);
      o.optimizer = optimizer;
      if (o.optimizer == "adafactor") o.hyper.clear();
      Trainer after(o);
      o.overlap = true;
      Trainer during(o);
      train(after);
      train(during);
      EXPECT_EQ(bits(during), bits(after)) << model << ", " << optimizer;
    }
  }
}

TEST(Overlap, SavesTheGradientsOfAllBlocksButThree) {
  Trainer after(options(kDeep, false)), during(options(kDeep, true));
  const auto gradients = [](const Trainer& t) { return t.memory()[MemoryClass::gradients]; };
  EXPECT_EQ(after.model().grad_bytes_saved(), 0u);
  EXPECT_GT(during.model().grad_bytes_saved(), 0u);
  EXPECT_EQ(gradients(during) + during.model().grad_bytes_saved(), gradients(after));
  size_t of_a_block = 0;
  for (size_t i = 0; i < after.model().size(); ++i) {
    if (after.model().spec(i).layer == 0) of_a_block += whole_places(after.model().grad(i).bytes());
  }
  EXPECT_EQ(during.model().grad_bytes_saved(), 4 * of_a_block);
  EXPECT_EQ(planned_memory(options(kDeep, true))[MemoryClass::gradients], gradients(during));
}

TEST(Overlap, KeepsGradientsThatAreAddedUp) {
  TrainerOptions o = options(kDeep, false);
  o.accumulation = 2;
  Trainer after(o);
  o.overlap = true;
  Trainer during(o);
  EXPECT_EQ(during.model().grad_bytes_saved(), 0u);
  train(after);
  train(during);
  EXPECT_EQ(bits(during), bits(after));
}

TEST(Overlap, IsRefusedWhereAllGradientsMustBeKnown) {
  const auto refusal = [](const TrainerOptions& o) -> std::string {
    try {
      Trainer trainer(o);
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was refused";
  };
  TrainerOptions clipped = options(kDeep, true), scaled = clipped;
  clipped.clip_norm = 1;
  scaled.loss_scale = 16;
  for (const TrainerOptions& o : {clipped, scaled}) {
    EXPECT_EQ(
        refusal(o),
        "updates while backward goes on do not know all gradients first, expected no clipping "
        "and no loss scale");
  }
}

}  // namespace
}  // namespace gallop::gpt
