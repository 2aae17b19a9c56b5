// SPDX-License-Identifier: MIT
// Steps that are skipped, and what happens to a bad gradient when they are not.
#include <cmath>
#include <functional>
#include <limits>

#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

const Formats kBf16 = {DType::bf16, DType::bf16, Rounding::remainder, StateFormat::bf16,
                       Rounding::stochastic};
const Formats kF16 = {DType::f16, DType::f16, Rounding::master, StateFormat::f32,
                      Rounding::nearest};

TEST(Skip, FoundInfChangesNothingButTheCounter) {
  for (const Variant& v : variants()) {
    for (const Formats& f : formats()) {
      SCOPED_TRACE(v.name + " " + to_string(f));
      Plan plan{v, f};
      plan.options.zero_grad = true;
      plan.group.schedule = {.kind = ScheduleKind::linear, .total_steps = 9};
      World w(plan);
      for (uint64_t k = 0; k < 2; ++k) {
        w.fill_grads(k);
        w.optimizer.step({.found_inf = k == 0});
        w.fill_grads(k + 5);
        const Snapshot before = w.snapshot(), grads = w.grad_snapshot();
        const double lr = w.optimizer.current_lr(0);
        EXPECT_FALSE(w.optimizer.step({.found_inf = true}));
        ASSERT_EQ(difference(before, w.snapshot()), "");
        ASSERT_EQ(difference(grads, w.grad_snapshot()), "");
        EXPECT_EQ(w.optimizer.current_lr(0), lr);
        EXPECT_EQ(w.optimizer.skipped(), static_cast<int64_t>(k) + 2);
      }
    }
  }
}

TEST(Skip, SkippedFirstStepLeavesTheNextAFirstStep) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    World skipping({v}), other({v});
    skipping.optimizer.step({.found_inf = true});
    for (World* w : {&skipping, &other}) {
      for (uint64_t k = 0; k < 2; ++k) {
        w->fill_grads(k);
        w->optimizer.step();
      }
    }
    ASSERT_EQ(difference(skipping.snapshot(), other.snapshot()), "");
  }
}

// The second step, with one bad element, first or last of the last tensor, in every gradient
// format.
template <class Check>
void for_bad_gradients(const std::string& rule, const Options& options, Check check) {
  for (const Formats& f : {kF32, kBf16, kF16, kF64}) {
    for (double bad : {kNan, kInf, -kInf}) {
      for (bool last : {false, true}) {
        SCOPED_TRACE(rule + " " + to_string(f) + " " + std::to_string(bad) +
                     (last ? " last" : " first"));
        Plan plan{plain(rule), f, options};
        plan.options.zero_grad = true;
        World w(plan);
        w.fill_grads(1);
        EXPECT_TRUE(w.optimizer.step());
        w.fill_grads(2);
        Buffer& grad = w.grads.back();
        grad.set(last ? grad.size() - 1 : 0, bad);
        check(w);
      }
    }
  }
}

void expect_skipped(World& w, const std::function<bool()>& step) {
  const Snapshot before = w.snapshot(), grads = w.grad_snapshot();
  const bool applied = step();
  // A GPU's step does not wait to learn whether it was skipped.
  if (test_device().kind == Device::Kind::cpu) {
    EXPECT_FALSE(applied);
  }
  ASSERT_EQ(difference(before, w.snapshot()), "");
  ASSERT_EQ(difference(grads, w.grad_snapshot()), "");
  EXPECT_EQ(w.optimizer.skipped(), 1);
  w.fill_grads(3);
  EXPECT_TRUE(step());
  EXPECT_EQ(w.optimizer.skipped(), 1);
}

TEST(Skip, NonfiniteGradientsSkipWhenAsked) {
  Options options = one_thread();
  options.skip_nonfinite = true;
  for (const std::string& rule : rule_names()) {
    for_bad_gradients(rule, options,
                      [](World& w) { expect_skipped(w, [&] { return w.optimizer.step(); }); });
  }
}

TEST(Skip, NonfiniteGradientsSkipWithThreadsAndClipNorm) {
  Options options;
  options.threads = 2;
  options.clip_norm = 0.1;
  options.skip_nonfinite = true;
  for_bad_gradients("adan", options,
                    [](World& w) { expect_skipped(w, [&] { return w.optimizer.step(); }); });
}

// Clipping by value would turn an Inf into a number like any other.
TEST(Skip, NonfiniteGradientsSkipWithClipValueToo) {
  Options options = one_thread();
  options.clip_value = 0.05;
  options.skip_nonfinite = true;
  for_bad_gradients("adamw", options,
                    [](World& w) { expect_skipped(w, [&] { return w.optimizer.step(); }); });
}

TEST(Skip, ScalerSkipsNonfiniteGradientsUnasked) {
  for_bad_gradients("adamw", one_thread(), [](World& w) {
    GradScaler scaler;
    scaler.scale = 1024;
    expect_skipped(w, [&] { return w.optimizer.step(scaler); });
    EXPECT_EQ(scaler.scale, 512);
    EXPECT_EQ(scaler.good_steps, 1);
    EXPECT_FALSE(w.optimizer.options().skip_nonfinite);
  });
}

TEST(Skip, LargeFiniteGradientsAreNoReason) {
  for (DType type : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    Formats f = type == DType::f64 ? kF64 : kF32;
    f.grad = type;
    Plan plan{plain("sgd"), f};
    plan.options.skip_nonfinite = true;
    World w(plan);
    // The largest fp32 can be squared in double; of fp16 the largest is 65504.
    w.grads.back().set(0, type == DType::f16 ? 65504 : 3e38);
    EXPECT_TRUE(w.optimizer.step());
  }
}

TEST(Skip, WithoutBeingAskedNanReachesItsOwnElementOnly) {
  constexpr int64_t kBad = 130;
  for (const Variant& v : variants()) {
    if (has_norms(v)) continue;
    for (const Formats& f : formats()) {
      if (shares_scales(f.state)) continue;  // see quantised_test.cpp
      SCOPED_TRACE(v.name + " " + to_string(f));
      World good({v, f}), bad({v, f});
      for (World* w : {&good, &bad}) {
        w->fill_grads(1);
        if (w == &bad) w->grads[5].set(kBad, kNan);
        EXPECT_TRUE(w->optimizer.step());
        w->fill_grads(2);
        EXPECT_TRUE(w->optimizer.step());
      }
      EXPECT_TRUE(std::isnan(bad.params[5].at(kBad)));
      // With that element's bytes put back, everything is as if the gradient had been good.
      const auto heal = [](void* to, const void* from, size_t width) {
        std::memcpy(static_cast<std::byte*>(to) + kBad * width,
                    static_cast<const std::byte*>(from) + kBad * width, width);
      };
      heal(bad.params[5].data(), good.params[5].data(), size_of(f.param));
      if (const void* low = good.optimizer.low_bits(5)) {
        heal(const_cast<void*>(bad.optimizer.low_bits(5)), low,
             f.rounding == Rounding::master ? 4 : 2);
      }
      const auto states = good.optimizer.states(5);
      for (size_t j = 0; j < states.size(); ++j) {
        heal(bad.optimizer.states(5)[j].data, states[j].data, size_of(states[j].dtype));
      }
      ASSERT_EQ(difference(good.snapshot(), bad.snapshot()), "");
    }
  }
}

TEST(Skip, WithoutBeingAskedANormTakesNanToItsOwnTensorOnly) {
  constexpr int64_t kBad = 300;
  for (const Variant& v : variants()) {
    if (!has_norms(v)) continue;
    SCOPED_TRACE(v.name);
    World good({v, kF32}), bad({v, kF32});
    for (World* w : {&good, &bad}) {
      w->fill_grads(1);
      w->optimizer.step();  // soap's first moves nothing
      if (w == &bad) w->grads[5].set(kBad, kNan);
      EXPECT_TRUE(w->optimizer.step());
    }
    EXPECT_TRUE(std::isnan(bad.params[5].at(kBad)));
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(difference(good.snapshot_of(i), bad.snapshot_of(i)), "") << i;
    }
  }
}

TEST(Scaler, GrowsAfterGoodStepsInARow) {
  World w({plain("sgd")});
  GradScaler scaler{.scale = 8, .growth_factor = 4, .backoff_factor = 0.25, .growth_interval = 3};
  std::vector<double> scales;
  for (int k = 0; k < 9; ++k) {
    w.grads.back().set(0, k == 2 ? kInf : 1);
    EXPECT_EQ(w.optimizer.step(scaler), k != 2);
    scales.push_back(scaler.scale);
  }
  // Good twice, bad, good three times, good three times.
  EXPECT_EQ(scales, (std::vector<double>{8, 8, 2, 2, 2, 8, 8, 8, 32}));
  EXPECT_EQ(w.optimizer.skipped(), 1);
}

TEST(Scaler, UnscalesGradients) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    World scaled({v}), other({v});
    GradScaler scaler;
    for (World* w : {&scaled, &other}) w->fill_grads(1);
    for (Buffer& g : scaled.grads) {
      for (int64_t i = 0; i < g.size(); ++i) g.set(i, g.at(i) * 4 * scaler.scale);
    }
    EXPECT_TRUE(scaled.optimizer.step(scaler, 4));
    other.optimizer.step();
    ASSERT_EQ(difference(scaled.snapshot(), other.snapshot()), "");
  }
}

TEST(Scaler, RefusedStepIsNotCounted) {
  World w({plain("sgd")});
  GradScaler scaler;
  scaler.scale = 0;
  expect_error(ErrorCode::invalid_argument, {"grad_scale is 0"}, [&] { w.optimizer.step(scaler); });
  EXPECT_EQ(scaler.good_steps, 0);
  EXPECT_EQ(w.optimizer.skipped(), 0);
  EXPECT_FALSE(w.optimizer.options().skip_nonfinite);
}

}  // namespace
}  // namespace gallop::test
