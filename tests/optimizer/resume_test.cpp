// SPDX-License-Identifier: MIT
// A run that was saved and resumed goes on as if it had never stopped.
#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

constexpr int kSteps = 10, kHalf = 5;
constexpr size_t kSometimesWithout = 2;  // this parameter misses some gradients

Plan plan_of(const Variant& v, const Formats& f, uint64_t seed) {
  Plan s{v, f};
  s.options.seed = seed;
  s.group.schedule = {
      .kind = ScheduleKind::cosine, .warmup_steps = 2, .total_steps = 12, .final_factor = 0.1};
  return s;
}

// Steps from..to of a run whose hyper-parameters change, which skips, and where gradients miss.
void train(World& w, int from, int to) {
  for (int k = from; k < to; ++k) {
    w.fill_grads(static_cast<uint64_t>(k));
    k % 3 == 0 ? w.take_grad(kSometimesWithout) : w.give_grad(kSometimesWithout);
    if (k == 2) w.optimizer.set(0, "lr", 0.02);
    if (k == 3) w.optimizer.set(1, "weight_decay", 0.25);
    if (k == 8) w.optimizer.set_all("lr", 0.005);
    if (k == 7 && has_entry(w.optimizer, "hessian")) w.optimizer.run("hessian");
    w.optimizer.step({.found_inf = k == 1});
  }
}

void expect_same_settings(const World& a, const World& b) {
  EXPECT_EQ(a.optimizer.skipped(), b.optimizer.skipped());
  EXPECT_EQ(a.optimizer.options().seed, b.optimizer.options().seed);
  for (size_t g = 0; g < a.optimizer.groups(); ++g) {
    EXPECT_EQ(a.optimizer.schedule(g), b.optimizer.schedule(g));
    EXPECT_EQ(a.optimizer.current_lr(g), b.optimizer.current_lr(g)) << "group " << g;
    for (const KnobInfo& k : a.optimizer.rule().knobs) {
      EXPECT_EQ(a.optimizer.get(g, k.name), b.optimizer.get(g, k.name)) << k.name;
    }
  }
}

// A fresh optimizer that has loaded what `saved` wrote. Its seed, rate and schedule are other ones
// until then.
World resumed(const Plan& plan, const World& saved, const std::string& path) {
  saved.optimizer.save(path);
  Plan fresh = plan;
  fresh.options.seed = plan.options.seed + 1;
  World w(fresh);
  w.optimizer.set_all("lr", 7);
  w.optimizer.set_schedule(1, {});
  copy_bytes(w.params, saved.params);
  w.optimizer.load(path);
  return w;
}

TEST(Resume, FivePlusFiveStepsAreTenForEveryRuleAndFormat) {
  const Folder folder;
  for (const Variant& v : variants()) {
    for (const Formats& f : formats()) {
      SCOPED_TRACE(v.name + " " + to_string(f));
      const Plan plan = plan_of(v, f, 11);
      World whole(plan), first(plan);
      train(whole, 0, kSteps);
      train(first, 0, kHalf);
      World second = resumed(plan, first, folder / "checkpoint");
      ASSERT_EQ(difference(first.snapshot(), second.snapshot()), "");
      expect_same_settings(first, second);
      EXPECT_EQ(second.optimizer.skipped(), 1);
      train(second, kHalf, kSteps);
      ASSERT_EQ(difference(whole.snapshot(), second.snapshot()), "");
      expect_same_settings(whole, second);
    }
  }
}

TEST(Resume, MayBeginBeforeTheFirstStep) {
  const Folder folder;
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const Plan plan = plan_of(v, kF32, 3);
    World whole(plan);
    World second = resumed(plan, whole, folder / "checkpoint");
    train(whole, 0, 3);
    train(second, 0, 3);
    ASSERT_EQ(difference(whole.snapshot(), second.snapshot()), "");
  }
}

TEST(Resume, EvalModeSurvives) {
  const Folder folder;
  const Plan plan = plan_of(plain("schedulefree_adamw"), kF32, 5);
  World whole(plan);
  train(whole, 0, kHalf);
  const Snapshot training = whole.snapshot();
  whole.optimizer.eval();
  ASSERT_NE(difference(training, whole.snapshot()), "");
  World second = resumed(plan, whole, folder / "checkpoint");
  expect_error(ErrorCode::invalid_argument, {"eval"}, [&] { second.optimizer.step(); });
  for (World* w : {&whole, &second}) {
    w->optimizer.train();
    train(*w, kHalf, kSteps);
  }
  EXPECT_EQ(difference(whole.snapshot(), second.snapshot()), "");
}

TEST(Resume, TrainModeReplacesEvalMode) {
  const Folder folder;
  const Plan plan = plan_of(plain("schedulefree_adamw"), kF32, 5);
  World saved(plan), other(plan);
  train(saved, 0, kHalf);
  train(other, 0, 3);
  other.optimizer.eval();
  saved.optimizer.save(folder / "checkpoint");
  copy_bytes(other.params, saved.params);
  other.optimizer.load(folder / "checkpoint");
  for (World* w : {&saved, &other}) train(*w, kHalf, kSteps);
  EXPECT_EQ(difference(saved.snapshot(), other.snapshot()), "");
}

TEST(Resume, SavingChangesNothing) {
  const Folder folder;
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const Plan plan = plan_of(v, kF32, 1);
    World saving(plan), other(plan);
    for (int k = 0; k < 4; ++k) {
      train(saving, k, k + 1);
      train(other, k, k + 1);
      saving.optimizer.save(folder / "checkpoint");
    }
    ASSERT_EQ(difference(saving.snapshot(), other.snapshot()), "");
  }
}

TEST(Resume, GoesOnWithAnyNumberOfThreadsAndInAnyMode) {
  const Folder folder;
  const Formats f = {DType::bf16, DType::bf16, Rounding::stochastic, StateFormat::bf16,
                     Rounding::stochastic};
  Plan plan = plan_of(plain("adamw"), f, 9);
  plan.sizes.back().push_back(20011);
  World whole(plan), first(plan);
  train(whole, 0, kSteps);
  train(first, 0, kHalf);
  plan.options.threads = 2;
  plan.options.mode = Mode::unfused;
  World second = resumed(plan, first, folder / "checkpoint");
  train(second, kHalf, kSteps);
  EXPECT_EQ(difference(whole.snapshot(), second.snapshot()), "");
}

}  // namespace
}  // namespace gallop::test
