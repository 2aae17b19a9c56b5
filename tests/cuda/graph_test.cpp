// SPDX-License-Identifier: MIT
#include "cuda/gpu.h"
#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

class GraphTest : public GpuTest {};

// Vectors and matrices.
const std::vector<size_t> kSizes = {5, 2048, 0, 10007, 70000, 1003, 256};

StepArgs on(const cuda::Stream& stream) {
  StepArgs args;
  args.stream = stream.handle();
  return args;
}

// 100 steps under a schedule with a change of rate on the way, eager or as one captured step; fewer
// where they take their time.
std::vector<float> hundred_steps(const std::string& rule, const Options& options, bool captured) {
  GroupOptions group;
  group.schedule = parse_schedule("cosine:warmup=10,total=90");
  GpuWorld w(rule, kSizes, options, group);
  cuda::Stream stream(0);
  w.optimizer->step(on(stream));
  std::unique_ptr<cuda::Graph> graph;
  if (captured) {
    graph = std::make_unique<cuda::Graph>(stream, [&] { w.optimizer->step(on(stream)); });
  }
  const int steps = cuda::emulated() ? 30 : 100;
  for (int i = 1; i < steps; ++i) {
    if (i == steps * 2 / 5 && w.optimizer->get(0, "lr") > 0) w.optimizer->set(0, "lr", 0.02);
    captured ? graph->launch() : void(w.optimizer->step(on(stream)));
  }
  stream.wait();
  EXPECT_EQ(w.optimizer->steps(0), steps);
  return w.everything();
}

TEST_F(GraphTest, ReplayedStepsFollowTheScheduleAndNewRatesToTheBit) {
  for (const std::string& rule : own_rules()) {
    const std::vector<float> eager = hundred_steps(rule, {}, false);
    EXPECT_TRUE(same_bits(eager, hundred_steps(rule, {}, true))) << rule;
    EXPECT_TRUE(same_bits(eager, hundred_steps(rule, {}, false))) << rule << ", again";
  }
}

TEST_F(GraphTest, SingleGivesTheSameBitsAsMulti) {
  Options single;
  single.mode = Mode::single;
  for (const std::string& rule : own_rules()) {
    EXPECT_TRUE(same_bits(hundred_steps(rule, single, false), hundred_steps(rule, {}, true)))
        << rule;
  }
}

TEST_F(GraphTest, ClippedStepsToo) {
  Options clip;
  clip.clip_norm = 0.5;
  clip.skip_nonfinite = true;
  EXPECT_TRUE(same_bits(hundred_steps("adamw", clip, true), hundred_steps("adamw", clip, false)));
}

TEST_F(GraphTest, OneLaunchForAnyNumberOfTensors) {
  GpuWorld w("adamw", std::vector<size_t>(1000, 300));
  cuda::Stream stream(0);
  w.optimizer->step(on(stream));
  cuda::Graph graph(stream, [&] { w.optimizer->step(on(stream)); });
  EXPECT_EQ(graph.nodes(), 1);
}

TEST_F(GraphTest, TheFirstStepCannotBeCapturedAndSaysSo) {
  GpuWorld w("adamw", kSizes);
  cuda::Stream stream(0);
  try {
    cuda::Graph graph(stream, [&] { w.optimizer->step(on(stream)); });
    FAIL() << "captured";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("take one step before"), std::string::npos) << e.what();
  }
  w.optimizer->step(on(stream));
  EXPECT_EQ(w.optimizer->steps(0), 1);
}

TEST_F(GraphTest, AChoiceOfParametersIsCapturedAfterItWasSteppedOnce) {
  GpuWorld w("adamw", kSizes), twin("adamw", kSizes);
  cuda::Stream stream(0);
  const std::vector<size_t> some = {1, 3};
  const auto step_some = [&](GpuWorld& world) {
    world.optimizer->begin_step(on(stream));
    world.optimizer->step_params(some);
    world.optimizer->end_step();
  };
  for (GpuWorld* world : {&w, &twin}) world->optimizer->step(on(stream));
  expect_error(ErrorCode::invalid_argument, {"take one step before"},
               [&] { cuda::Graph graph(stream, [&] { step_some(w); }); });
  w.optimizer->end_step();
  twin.optimizer->begin_step(on(stream));
  twin.optimizer->end_step();
  for (GpuWorld* world : {&w, &twin}) step_some(*world);
  cuda::Graph graph(stream, [&] { step_some(w); });
  for (int i = 0; i < 3; ++i) {
    graph.launch();
    step_some(twin);
  }
  stream.wait();
  EXPECT_TRUE(same_bits(w.everything(), twin.everything()));
  EXPECT_EQ(w.optimizer->steps(1), 5);
  EXPECT_EQ(w.optimizer->steps(0), 1);
}

TEST_F(GraphTest, ScaleAndFoundInfAreReadWhenTheStepRuns) {
  GpuWorld w("sgd", {1000});
  Floats scale({1}), found_inf({0});
  cuda::Stream stream(0);
  StepArgs args = on(stream);
  args.device_grad_scale = scale.data();
  args.device_found_inf = found_inf.data();
  w.optimizer->step(args);
  cuda::Graph graph(stream, [&] { w.optimizer->step(args); });
  const std::vector<float> before = w.params[0]->get(), grad = w.grads[0]->get();
  scale.set({4});
  graph.launch();
  stream.wait();
  const std::vector<float> after = w.params[0]->get();
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_FLOAT_EQ(after[i], before[i] - 1e-3f * (grad[i] / 4)) << i;
  }
  found_inf.set({1});
  graph.launch();
  stream.wait();
  EXPECT_TRUE(same_bits(w.params[0]->get(), after));
  EXPECT_EQ(w.optimizer->skipped(), 1);
  EXPECT_EQ(w.optimizer->steps(0), 2);
}

}  // namespace
}  // namespace gallop::test
