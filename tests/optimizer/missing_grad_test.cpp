// SPDX-License-Identifier: MIT
// Parameters without a gradient are not there for a step.
#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

TEST(MissingGrad, LeavesTheParameterAndItsCountAlone) {
  for (const Variant& v : variants()) {
    for (const Formats& f : formats()) {
      SCOPED_TRACE(v.name + " " + to_string(f));
      World w({v, f});
      for (uint64_t k = 0; k < 4; ++k) {
        w.fill_grads(k);
        k == 2 ? w.take_grad(3) : w.give_grad(3);
        const Snapshot before = w.snapshot_of(3), other = w.snapshot_of(5);
        w.optimizer.step();
        ASSERT_EQ(difference(before, w.snapshot_of(3)) == "", k == 2);
        ASSERT_NE(difference(other, w.snapshot_of(5)), "");
      }
      EXPECT_EQ(w.optimizer.steps(3), 3);
      EXPECT_EQ(w.optimizer.steps(5), 4);
    }
  }
}

TEST(MissingGrad, DoesNotShowInOtherParameters) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    World all({v}), some({v});
    for (uint64_t k = 0; k < 3; ++k) {
      for (World* w : {&all, &some}) w->fill_grads(k);
      k == 1 ? some.take_grad(3) : some.give_grad(3);
      for (World* w : {&all, &some}) w->optimizer.step();
    }
    for (size_t i : {1, 2, 4, 5}) {
      ASSERT_EQ(difference(all.snapshot_of(i), some.snapshot_of(i)), "") << i;
    }
  }
}

// Where parameters are counted, a late one begins as all others did: with step 1.
TEST(MissingGrad, LateFirstStepIsAFirstStep) {
  for (const Variant& v : variants()) {
    if (rule_info(v.rule).counts_per_group) continue;
    for (const Formats& f : formats()) {
      SCOPED_TRACE(v.name + " " + to_string(f));
      World late({v, f}), fresh({v, f});
      late.take_grad(5);
      for (uint64_t k = 0; k < 3; ++k) {
        late.fill_grads(k);
        late.optimizer.step();
      }
      EXPECT_EQ(late.optimizer.steps(5), 0);
      late.give_grad(5);
      for (World* w : {&late, &fresh}) {
        for (uint64_t k = 3; k < 5; ++k) {
          w->fill_grads(k);
          w->optimizer.step();
        }
      }
      ASSERT_EQ(difference(late.snapshot_of(5), fresh.snapshot_of(5)), "");
    }
  }
}

// The schedule is the group's: it moves on whether or not a parameter had a gradient.
TEST(MissingGrad, ScheduleMovesOnForAllParameters) {
  Plan plan{plain("sgd")};
  plan.group.schedule = {.kind = ScheduleKind::linear, .total_steps = 4};
  World w(plan);
  w.take_grad(5);
  for (int k = 0; k < 2; ++k) w.optimizer.step();
  EXPECT_DOUBLE_EQ(w.optimizer.current_lr(0), 0.01 * 0.5);
  EXPECT_DOUBLE_EQ(w.optimizer.current_lr(1), 0.005 * 0.5);
}

TEST(MissingGrad, StepWithoutAnyGradientOnlyMovesTheSchedule) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    Plan plan{v};
    plan.group.schedule = {.kind = ScheduleKind::linear, .total_steps = 4};
    plan.options.clip_norm = 1;
    plan.options.skip_nonfinite = true;
    plan.options.zero_grad = true;
    World w(plan);
    for (size_t i = 0; i < w.params.size(); ++i) w.take_grad(i);
    const Snapshot before = w.snapshot();
    EXPECT_TRUE(w.optimizer.step());
    EXPECT_EQ(difference(before, w.snapshot()), "");
    EXPECT_EQ(w.optimizer.grad_norm(), 0);
    EXPECT_DOUBLE_EQ(w.optimizer.current_lr(0), 0.01 * 0.75);
  }
}

TEST(ResetState, BeginsAnew) {
  for (const Variant& v : variants()) {
    for (const Formats& f : formats()) {
      SCOPED_TRACE(v.name + " " + to_string(f));
      World used({v, f});
      for (uint64_t k = 0; k < 3; ++k) {
        used.fill_grads(k);
        used.step_all_entries();
      }
      used.optimizer.reset_state();
      World fresh({v, f});
      copy_bytes(used.params, fresh.params);
      for (World* w : {&used, &fresh}) w->optimizer.refresh_masters();
      ASSERT_EQ(difference(used.snapshot(), fresh.snapshot()), "");
      for (World* w : {&used, &fresh}) {
        w->fill_grads(5);
        w->step_all_entries();
      }
      ASSERT_EQ(difference(used.snapshot(), fresh.snapshot()), "");
    }
  }
}

}  // namespace
}  // namespace gallop::test
