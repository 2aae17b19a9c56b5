// SPDX-License-Identifier: MIT
// Kernels compiled at run time on a GPU: nothing of them shows in results, to the bit.
#include "cuda/gpu.h"
#include "jit/library.h"
#include "jit/rule_files.h"

namespace gallop::test {
namespace {

class CompiledOnGpu : public GpuTest {};

Plan on_gpu(const Variant& v, const Formats& f) {
  Plan plan{v, f};
  plan.device = kGpu;
  plan.sizes = {{0, 1, 255, 256}, {257, 1003, 5120}};
  return plan;
}

// Every fourth where a C++ compiler has to be run for each.
template <class T>
std::vector<T> some_of(const std::vector<T>& all) {
  std::vector<T> out;
  for (size_t i = 0; i < all.size(); i += cuda::emulated() ? 4 : 1) out.push_back(all[i]);
  return out;
}

void expect_same(const Plan& plan, const Plan& compiled, Mode mode = Mode::compiled) {
  EXPECT_EQ(difference(after_steps(plan, Mode::multi), after_steps(compiled, mode)), "")
      << plan.variant.name << " " << to_string(plan.formats) << " " << to_string(mode);
}

TEST_F(CompiledOnGpu, EveryRuleGivesTheBitsOfMulti) {
  const std::vector<Formats> all = formats();
  size_t turn = 0;
  for (const Variant& v : some_of(variants())) {
    for (const Formats& f : {kF32, all[turn++ * 7 % all.size()]}) {
      expect_same(on_gpu(v, f), on_gpu(v, f));
    }
  }
}

TEST_F(CompiledOnGpu, EveryFormatGivesTheBitsOfMulti) {
  for (const Formats& f : some_of(formats())) {
    Plan plan = on_gpu(plain("adamw"), f);
    plan.options.clip_value = 0.05;
    plan.options.seed = 5;
    expect_same(plan, plan);
  }
}

TEST_F(CompiledOnGpu, PoliciesGiveTheBitsOfMulti) {
  Plan plan = on_gpu(plain("adamw"), kF32);
  plan.policy = "size<256=fp32,dims>=2=8bit,bf16";
  expect_same(plan, plan);
}

TEST_F(CompiledOnGpu, RulesFromFilesGiveTheBitsOfTheLibrarys) {
  const Formats codes = {DType::bf16, DType::bf16, Rounding::remainder, StateFormat::q8,
                         Rounding::nearest};
  for (const std::string rule : {"lion", "sophiag", "nadam", "lamb", "muon", "soap"}) {
    const Folder folder;
    const std::string mine = "gpu_" + rule;
    load_rule_file(file_like(folder, rule, mine));
    for (const Formats& f : {kF32, codes}) {
      const Plan theirs = on_gpu(plain(rule), f);
      Plan own = theirs;
      own.variant.rule = mine;
      for (const Mode mode : {Mode::unfused, Mode::single, Mode::multi, Mode::compiled}) {
        expect_same(theirs, own, mode);
      }
    }
  }
}

TEST_F(CompiledOnGpu, StepsAreCapturedAndRatesFollowedWithoutCompiling) {
  Options options;
  options.mode = Mode::compiled;
  GpuWorld eager("adamw", {1000, 333}), replayed("adamw", {1000, 333}, options);
  eager.optimizer->step();
  replayed.optimizer->step();
  cuda::synchronize(0);
  const jit::Spent before = jit::spent();
  cuda::Stream stream(0);
  StepArgs args;
  args.stream = stream.handle();
  cuda::Graph graph(stream, [&] { replayed.optimizer->step(args); });
  for (int k = 0; k < 3; ++k) {
    eager.optimizer->set_all("lr", 0.1 / (k + 1));
    replayed.optimizer->set_all("lr", 0.1 / (k + 1));
    cuda::synchronize(0);
    eager.optimizer->step();
    graph.launch();
    stream.wait();
    cuda::synchronize(0);
    EXPECT_TRUE(same_bits(eager.everything(), replayed.everything())) << k;
  }
  EXPECT_EQ(jit::spent().compiled, before.compiled);
}

TEST_F(CompiledOnGpu, ErrorsHaveTheFilesLine) {
  const Folder folder;
  // Well for the host's compiler, not for a GPU's.
  const std::string text = replaced(
      replaced(jit::built_in_rule("lion")->text, "\"lion\"", "\"host_only\""), "namespace gallop",
      "#if defined(__CUDACC__)\n#error no GPU for this one\n#endif\nnamespace gallop");
  const std::string path = write(folder / "host_only.h", text);
  load_rule_file(path);
  if (cuda::emulated()) GTEST_SKIP() << "the emulated GPU is the host";
  float* p = static_cast<float*>(cuda::allocate(0, 4));
  Options options;
  options.device = kGpu;
  Optimizer o("host_only", options);
  o.add_group({{"p", {1}, p, p}});
  const std::string message = message_of([&] { o.step(); });
  EXPECT_THAT(message, testing::StartsWith(path + "("));
  EXPECT_THAT(message, testing::HasSubstr("no GPU for this one"));
  cuda::release(0, p);
}

}  // namespace
}  // namespace gallop::test
