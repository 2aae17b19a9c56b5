// SPDX-License-Identifier: MIT
// Mode compiled: nothing of it shows in results, to the bit.
#include "jit/library.h"
#include "optimizer/fixture.h"

namespace gallop::test {
namespace {

void expect_same(const Plan& plan, int threads = 1) {
  const Snapshot expected = after_steps(plan, Mode::multi);
  Plan shared_out = plan;
  shared_out.options.threads = threads;
  EXPECT_EQ(difference(expected, after_steps(shared_out, Mode::compiled)), "")
      << plan.variant.name << " " << to_string(plan.formats);
}

TEST(Compiled, EveryRuleGivesTheBitsOfMulti) {
  const std::vector<Formats> all = formats();
  size_t turn = 0;
  for (const Variant& v : variants()) {
    expect_same({v, kF32});
    expect_same({v, all[turn++ * 7 % all.size()]}, 3);
  }
}

TEST(Compiled, EveryFormatGivesTheBitsOfMulti) {
  for (const Formats& f : formats()) {
    Plan plan{plain("adamw"), f};
    plan.options.clip_value = 0.05;
    plan.options.clip_norm = 2;
    plan.options.seed = 5;
    expect_same(plan);
  }
}

TEST(Compiled, PoliciesGiveTheBitsOfMulti) {
  Plan plan{plain("adamw"), kF32};
  plan.policy = "size<256=fp32,dims>=2=8bit,bf16";
  expect_same(plan);
}

TEST(Compiled, FoldedHyperParametersGiveTheBitsOfMulti) {
  for (const Variant& v : variants()) {
    Plan plan{v, kF32};
    plan.options.fold_hyper = true;
    expect_same(plan);
  }
  Plan bf16{
      plain("adamw"),
      {DType::bf16, DType::bf16, Rounding::stochastic, StateFormat::bf16, Rounding::stochastic}};
  bf16.options.fold_hyper = true;
  expect_same(bf16);
}

// What changes from step to step is no reason to compile.
TEST(Compiled, ChangedRatesAndHyperParametersAreFollowedWithoutCompiling) {
  for (const bool fold : {false, true}) {
    const auto run = [&](Mode mode) {
      Plan plan{plain("adamw"), kF32};
      plan.options.mode = mode;
      plan.options.fold_hyper = fold;
      plan.group.schedule = parse_schedule("cosine:warmup=2,total=10,final=0.1");
      World w(plan);
      const jit::Spent before = jit::spent();
      for (int k = 0; k < 6; ++k) {
        w.fill_grads(static_cast<uint64_t>(k));
        w.optimizer.step();
        if (k == 1) w.optimizer.set_all("lr", 0.003);
        if (k == 2) w.optimizer.set_all("beta1", 0.8);
        if (k == 3) w.optimizer.set_all("weight_decay", 0);
      }
      EXPECT_EQ(jit::spent().compiled, before.compiled);
      EXPECT_EQ(jit::spent().from_cache, before.from_cache);
      return w.snapshot();
    };
    EXPECT_EQ(difference(run(Mode::multi), run(Mode::compiled)), "") << fold;
  }
}

TEST(Compiled, ASecondOptimizerCompilesNothing) {
  const Plan plan{plain("adan"), kF32};
  after_steps(plan, Mode::compiled);
  const jit::Spent before = jit::spent();
  after_steps(plan, Mode::compiled);
  EXPECT_EQ(jit::spent().compiled, before.compiled);
  {
    const jit::Forgetting memory(jit::Forgetting::memory);
    after_steps(plan, Mode::compiled);
  }
  EXPECT_EQ(jit::spent().compiled, before.compiled);
  EXPECT_GT(jit::spent().from_cache, before.from_cache);
  const jit::Forgetting all(jit::Forgetting::everything);
  after_steps(plan, Mode::compiled);
  EXPECT_GT(jit::spent().compiled, before.compiled);
}

}  // namespace
}  // namespace gallop::test
