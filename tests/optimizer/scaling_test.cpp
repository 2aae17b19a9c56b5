// SPDX-License-Identifier: MIT
// What is done to gradients on the way in equals doing it to them by hand.
#include <algorithm>
#include <cmath>
#include <functional>

#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

void change(std::vector<Buffer>& grads, const std::function<double(double)>& f) {
  for (Buffer& g : grads) {
    for (int64_t i = 0; i < g.size(); ++i) g.set(i, f(g.at(i)));
  }
}

using Change = std::function<double(double)>;
double unchanged(double g) { return g; }

// Two steps of both, each with its gradients changed before.
void expect_same(const Plan& plan, const StepArgs& args, const Change& grads, const Plan& by_hand,
                 const Change& hand_grads) {
  World library(plan), hand(by_hand);
  for (uint64_t k = 0; k < 2; ++k) {
    for (World* w : {&library, &hand}) w->fill_grads(k);
    change(library.grads, grads);
    change(hand.grads, hand_grads);
    library.optimizer.step(args);
    hand.optimizer.step();
  }
  ASSERT_EQ(difference(library.snapshot(), hand.snapshot()), "");
}

template <class F>
void for_all(F f) {
  for (const Variant& v : variants()) {
    for (const Formats& format : formats()) {
      SCOPED_TRACE(v.name + " " + to_string(format));
      f(Plan{v, format});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Scaling, GradScaleAndAccumulationDivide) {
  // Powers of two: exact in every format.
  for_all([](const Plan& plan) {
    const auto times = [](double x) { return [x](double g) { return g * x; }; };
    expect_same(plan, {.grad_scale = 8}, times(8), plan, unchanged);
    expect_same(plan, {.accumulation = 4}, times(4), plan, unchanged);
    expect_same(plan, {.grad_scale = 0.5, .accumulation = 16}, times(8), plan, unchanged);
  });
}

TEST(Scaling, MaximizeIsNegatedGradients) {
  for_all([](const Plan& plan) {
    Plan maximizing = plan;
    maximizing.group.maximize = true;
    expect_same(maximizing, {}, unchanged, plan, [](double g) { return -g; });
  });
}

TEST(Clipping, ClipValueClamps) {
  for_all([](const Plan& plan) {
    // A limit that every format can hold; about half of the gradients are beyond it.
    Plan clipping = plan;
    clipping.options.clip_value = 0.0625;
    expect_same(clipping, {}, unchanged, plan,
                [](double g) { return std::clamp(g, -0.0625, 0.0625); });
  });
}

TEST(Clipping, ClipValueClampsWhatIsLeftAfterUnscaling) {
  Plan plan{plain("adam"), kF64}, clipping = plan;
  clipping.options.clip_value = 0.05;
  expect_same(clipping, {.grad_scale = 2}, unchanged, plan,
              [](double g) { return std::clamp(g / 2, -0.05, 0.05); });
}

TEST(Clipping, NormBelowTheLimitLeavesTheBits) {
  for_all([](const Plan& plan) {
    Plan clipping = plan;
    clipping.options.clip_norm = 1e6;
    expect_same(clipping, {}, unchanged, plan, unchanged);
  });
}

// Gradients 3 and 4, all others zero: the norm is 5 without rounding.
void three_and_four(World& w) {
  change(w.grads, [](double) { return 0; });
  w.grads[1].set(0, 3);
  w.grads[5].set(1002, -4);
}

void expect_clipped(const Plan& clipping, const Plan& plan, double factor) {
  World library(clipping), hand(plan);
  for (int k = 0; k < 2; ++k) {
    for (World* w : {&library, &hand}) three_and_four(*w);
    // Coefficients are computed in double and rounded once to the kernel's precision.
    const bool wide = plan.formats.param == DType::f64;
    const double rounded = wide ? factor : static_cast<double>(static_cast<float>(factor));
    change(hand.grads, [&](double g) { return g * rounded; });
    library.optimizer.step();
    EXPECT_EQ(library.optimizer.grad_norm(), 5);
    hand.optimizer.step();
  }
  ASSERT_EQ(difference(library.snapshot(), hand.snapshot()), "");
}

TEST(Clipping, NormAboveTheLimitScalesByLimitOverNormPlus1em6) {
  for (const Variant& v : variants()) {
    for (const Formats& f : {kF32, kF64}) {
      SCOPED_TRACE(v.name + " " + to_string(f));
      Plan plan{v, f}, clipping = plan;
      clipping.options.clip_norm = 2;
      expect_clipped(clipping, plan, 2 / (5 + 1e-6));
    }
  }
}

TEST(Clipping, NormEqualToTheLimitIsScaledByTheEpsilonAlone) {
  Plan plan{plain("sgd"), kF64}, clipping = plan;
  clipping.options.clip_norm = 5;
  expect_clipped(clipping, plan, 5 / (5 + 1e-6));
}

TEST(Clipping, AdanClipsByItsOwnMaxGradNorm) {
  for (const Formats& f : {kF32, kF64}) {
    Plan plan{plain("adan"), f};
    plan.variant.hyper.emplace_back("eps", 0.25);
    Plan clipping = plan;
    clipping.variant.hyper.emplace_back("max_grad_norm", 2);
    expect_clipped(clipping, plan, 2 / (5 + 0.25));
    clipping.variant.hyper.back().second = 5.5;  // above: nothing is scaled
    expect_clipped(clipping, plan, 1);
  }
}

TEST(Clipping, ValueComesBeforeNorm) {
  Plan plan{plain("sgd"), kF64}, clipping = plan;
  clipping.options.clip_value = 3;
  clipping.options.clip_norm = 1;
  World library(clipping), hand(plan);
  for (World* w : {&library, &hand}) three_and_four(*w);
  const double factor = 1 / (std::sqrt(18.0) + 1e-6);
  change(hand.grads, [&](double g) { return std::clamp(g, -3.0, 3.0) * factor; });
  library.optimizer.step();
  hand.optimizer.step();
  EXPECT_EQ(difference(library.snapshot(), hand.snapshot()), "");
}

TEST(Clipping, GradNormIsThatOfAllUnscaledGradients) {
  for (const Formats& f : formats()) {
    Plan plan{plain("sgd"), f};
    plan.options.clip_norm = 0.5;
    plan.options.threads = 3;
    plan.group.maximize = true;
    plan.sizes = {{0, 1, 255, 256}, {257, 1003, 70001}};
    World w(plan);
    w.fill_grads(1);
    w.take_grad(4);
    EXPECT_EQ(w.optimizer.grad_norm(), 0);
    w.optimizer.step({.grad_scale = 4});
    long double sum = 0;
    for (size_t i = 0; i < w.grads.size(); ++i) {
      for (int64_t k = 0; k < w.grads[i].size() && i != 4; ++k) {
        sum += static_cast<long double>(w.grads[i].at(k)) * w.grads[i].at(k) / 16;
      }
    }
    const auto norm = static_cast<double>(std::sqrt(sum));
    EXPECT_NEAR(w.optimizer.grad_norm(), norm, 1e-13 * norm) << to_string(f);
  }
}

TEST(Zeroing, ZeroGradZeroesEveryFormatAndChangesNothingElse) {
  for_all([](const Plan& plan) {
    Plan zeroing = plan;
    zeroing.options.zero_grad = true;
    zeroing.options.threads = 2;
    zeroing.sizes = {{0, 1, 255, 256}, {257, 1003, 9001}};
    Plan keeping = zeroing;
    keeping.options.zero_grad = false;
    World zeroed(zeroing), kept(keeping);
    for (World* w : {&zeroed, &kept}) {
      w->fill_grads(1);
      w->take_grad(3);
    }
    const Snapshot grads = kept.grad_snapshot();
    for (World* w : {&zeroed, &kept}) w->optimizer.step();
    ASSERT_EQ(difference(zeroed.snapshot(), kept.snapshot()), "");
    ASSERT_EQ(difference(grads, kept.grad_snapshot()), "");
    Snapshot expected = grads;
    for (size_t i = 0; i < expected.parts.size(); ++i) {
      auto& bytes = expected.parts[i].second;
      if (i != 3) std::fill(bytes.begin(), bytes.end(), std::byte{0});
    }
    ASSERT_EQ(difference(expected, zeroed.grad_snapshot()), "");
    kept.optimizer.zero_grad();
    ASSERT_EQ(difference(expected, kept.grad_snapshot()), "");
    ASSERT_EQ(difference(zeroed.snapshot(), kept.snapshot()), "");
    EXPECT_TRUE(zeroed.guards_intact() && kept.guards_intact());
  });
}

}  // namespace
}  // namespace gallop::test
