// SPDX-License-Identifier: MIT
// How a step is carried out does not show in its result, to the bit.
#include <thread>

#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

// The last tensor is large enough for seven threads to have a share of it alone.
Plan plan_of(const Variant& v, const Formats& f, bool clip_and_zero) {
  Plan plan{v, f};
  plan.sizes = {{0, 1, 255, 256}, {257, 1003, 30011}};
  plan.options.seed = 17;
  if (clip_and_zero) {
    plan.options.clip_norm = 2;
    plan.options.clip_value = 0.25;
    plan.options.zero_grad = true;
  }
  return plan;
}

// Two steps with every entry of the rule. The gradients' bits are kept, for they are costly to
// make.
Snapshot result(Plan plan, Mode mode, int threads, const std::vector<Buffer>& grads) {
  plan.options.mode = mode;
  plan.options.threads = threads;
  World w(plan);
  for (int k = 0; k < 2; ++k) {
    copy_bytes(w.grads, grads);
    w.step_all_entries();
  }
  EXPECT_TRUE(w.guards_intact());
  Snapshot s = w.snapshot();
  for (const auto& part : w.grad_snapshot().parts) s.parts.push_back(part);
  return s;
}

// Every mode with every number of threads gives what one thread gives in mode multi.
void expect_same(const Plan& plan, const std::vector<Mode>& modes,
                 const std::vector<int>& thread_counts) {
  World source(plan);
  source.fill_grads(1);
  const Snapshot expected = result(plan, Mode::multi, 1, source.grads);
  EXPECT_NE(difference(source.snapshot(), expected), "");
  for (Mode mode : modes) {
    for (int threads : thread_counts) {
      EXPECT_EQ(difference(expected, result(plan, mode, threads, source.grads)), "")
          << plan.variant.name << " " << to_string(plan.formats) << " " << to_string(mode) << " "
          << threads << " threads";
    }
  }
}

TEST(Execution, ModesGiveTheSameBits) {
  for (const Variant& v : variants()) {
    for (const Formats& f : formats()) {
      for (bool clip_and_zero : {false, true}) {
        expect_same(plan_of(v, f, clip_and_zero), {Mode::unfused, Mode::single, Mode::multi}, {1});
      }
    }
  }
}

TEST(Execution, ThreadsGiveTheSameBits) {
  bool clip_and_zero = false;
  for (const Variant& v : variants()) {
    for (const Formats& f : formats()) {  // an odd number: each has clipping for some rules
      clip_and_zero = !clip_and_zero;
      expect_same(plan_of(v, f, clip_and_zero), {Mode::single, Mode::multi}, {2, 3, 7});
    }
  }
}

// Few tensors and formats: each of the many passes wakes all threads.
TEST(Execution, ThreadsGiveTheSameBitsUnfused) {
  const Formats bf16 = {DType::bf16, DType::f16, Rounding::stochastic, StateFormat::bf16,
                        Rounding::stochastic};
  for (const Variant& v : variants()) {
    for (const Formats& f : {kF64, bf16}) {
      Plan plan = plan_of(v, f, true);
      plan.sizes = {{257}, {3001, 256}};
      expect_same(plan, {Mode::unfused}, {2, 3, 7});
    }
  }
}

TEST(Execution, StepInPiecesIsAStep) {
  for (const Variant& v : variants()) {
    for (const Formats& f : formats()) {
      SCOPED_TRACE(v.name + " " + to_string(f));
      Plan plan{v, f};
      plan.options.clip_norm = 0.5;
      plan.options.zero_grad = true;
      World whole(plan), pieces(plan);
      for (uint64_t k = 0; k < 3; ++k) {
        for (World* w : {&whole, &pieces}) {
          w->fill_grads(k);
          k == 1 ? w->take_grad(4) : w->give_grad(4);
        }
        EXPECT_TRUE(whole.optimizer.step({.grad_scale = 4}));
        EXPECT_TRUE(pieces.optimizer.begin_step({.grad_scale = 4}));
        // Not in order, and both groups in both pieces.
        pieces.optimizer.step_params(std::vector<size_t>{5, 1, 3});
        pieces.optimizer.step_params(std::vector<size_t>{0, 4, 2});
        pieces.optimizer.end_step();
      }
      ASSERT_EQ(difference(whole.snapshot(), pieces.snapshot()), "");
      ASSERT_EQ(difference(whole.grad_snapshot(), pieces.grad_snapshot()), "");
    }
  }
}

TEST(Execution, ParametersLeftOutOfTheirStepWaitForTheNext) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    World pieces({v}), without({v});
    for (World* w : {&pieces, &without}) w->fill_grads(1);
    pieces.optimizer.begin_step();
    pieces.optimizer.step_params(std::vector<size_t>{0, 2, 5});
    pieces.optimizer.end_step();
    for (size_t i : {1, 3, 4}) without.take_grad(i);
    without.optimizer.step();
    for (size_t i : {1, 3, 4}) without.give_grad(i);
    ASSERT_EQ(difference(pieces.snapshot(), without.snapshot()), "");
    for (World* w : {&pieces, &without}) w->optimizer.step();
    ASSERT_EQ(difference(pieces.snapshot(), without.snapshot()), "");
  }
}

TEST(Execution, SkippedStepInPiecesChangesNothing) {
  World w({plain("adam")});
  w.fill_grads(1);
  const Snapshot before = w.snapshot();
  EXPECT_FALSE(w.optimizer.begin_step({.found_inf = true}));
  w.optimizer.step_params(std::vector<size_t>{0, 1, 2, 3, 4, 5});
  w.optimizer.end_step();
  EXPECT_EQ(difference(before, w.snapshot()), "");
  EXPECT_EQ(w.optimizer.skipped(), 1);
}

// A parameter's update depends on its name, not on what else the optimizer holds: shards agree.
TEST(Execution, ShardsDrawTheSameRandomBitsAsTheWhole) {
  const Formats f = {DType::bf16, DType::f32, Rounding::stochastic, StateFormat::bf16,
                     Rounding::stochastic};
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const Plan plan{v, f};
    World whole(plan);
    Optimizer shard(v.rule, on_device(plan.options, plan.device));
    Buffer data(f.param, 1003, false, plan.device), grad(f.grad, 1003, false, plan.device);
    copy_bytes(data, whole.params[5]);
    GroupOptions group;
    group.hyper = v.hyper;
    group.rounding = f.rounding;
    group.state = f.state;
    shard.add_group(
        {{"p5", shape_of(1003), data.data(), grad.data(), f.param, f.grad, Role::hidden}}, group);
    shard.set(0, "lr", whole.optimizer.get(1, "lr"));
    for (uint64_t k = 0; k < 3; ++k) {
      whole.fill_grads(k);
      copy_bytes(grad, whole.grads[5]);
      whole.optimizer.step();
      shard.step();
    }
    ASSERT_EQ(std::memcmp(data.data(), whole.params[5].data(), 1003 * 2), 0);
  }
}

TEST(Execution, SeedsDecideStochasticRounding) {
  const Formats f = {DType::bf16, DType::f32, Rounding::stochastic, StateFormat::f32,
                     Rounding::nearest};
  Snapshot results[3];
  for (size_t i = 0; i < 3; ++i) {
    Plan plan{plain("adamw"), f};
    plan.options.seed = i == 2 ? 8 : 7;
    World w(plan);
    w.fill_grads(1);
    w.optimizer.step();
    results[i] = w.snapshot();
  }
  EXPECT_EQ(difference(results[0], results[1]), "");
  EXPECT_NE(difference(results[0], results[2]), "");
}

TEST(Execution, TwoOptimizersInTwoThreadsGiveTheSameBitsAsOneAfterTheOther) {
  Plan plan = plan_of(plain("adamw"), kF32, true);
  plan.options.threads = 2;
  const auto train = [](World& w, uint64_t seed) {
    for (uint64_t k = 0; k < 20; ++k) {
      w.fill_grads(seed + k);
      w.optimizer.step();
    }
  };
  World one(plan), two(plan), one_alone(plan), two_alone(plan);
  std::thread first([&] { train(one, 0); }), second([&] { train(two, 100); });
  first.join();
  second.join();
  train(one_alone, 0);
  train(two_alone, 100);
  EXPECT_EQ(difference(one.snapshot(), one_alone.snapshot()), "");
  EXPECT_EQ(difference(two.snapshot(), two_alone.snapshot()), "");
}

}  // namespace
}  // namespace gallop::test
