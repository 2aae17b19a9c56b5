// SPDX-License-Identifier: MIT
// The engine on a GPU against the one on the CPU in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "../gpt/fixture.h"
#include "../gpt/tiny_run.h"
#include "cuda/gpu.h"
#include "gallop/error.h"
#include "gpt/planned.h"
#include "gpt/trainer_parts.h"
#include "io/safetensors.h"

namespace gallop::gpt {
namespace {

struct Case {
  std::string model;
  DType type;
  Attention attention = Attention::fused;
  double bound = 0;  // of each gradient's relative error, by norm

  friend std::ostream& operator<<(std::ostream& to, const Case& c) {
    return to << c.model << ", " << to_string(c.type)
              << (c.attention == Attention::naive ? ", naive" : "");
  }
};

class OnGpu {
 public:
  OnGpu(const Config& config, ModelOptions options, DType type, DType gradients)
      : ops_(gpu_ops(config, {})), model_(config, with(options, type, gradients), *ops_) {}

  Model& model() { return model_; }
  Ops& ops() { return *ops_; }
  double step(const data::Batch& batch, bool add = false) {
    const Tokens& on = model_.upload(batch);
    model_.forward(on, add);
    model_.backward(on, add);
    return model_.loss();
  }

 private:
  static ModelOptions with(ModelOptions options, DType type, DType gradients) {
    options.precision = {type, DType::f32, DType::f32, gradients};
    return options;
  }
  std::unique_ptr<Ops> ops_;
  Model model_;
};

void expect_near(Model& gpu, Model& wide, double bound) {
  for (size_t i = 0; i < gpu.size(); ++i) {
    EXPECT_LE(distance(gpu.grad_values(i), wide.grad_values(i)), bound) << gpu.spec(i).name;
  }
}

// The same values in both, as the GPU's types hold them.
void copy_values(Model& from, Model& to) {
  for (size_t i = 0; i < from.size(); ++i) to.set_values(i, from.values(i));
}

constexpr char kGpt2[] = "nano:layers=2:heads=3:width=24:hidden=40:vocabulary=17:context=9";
constexpr char kSwiglu[] = "S:layers=2:heads=2:width=32:hidden=24:vocabulary=24:context=9";
constexpr char kOdd[] = "nano:layers=1:heads=3:width=15:hidden=21:vocabulary=13:context=37";
constexpr char kWide[] = "S:layers=1:heads=1:width=104:hidden=56:vocabulary=19:context=70";

// Fused attention in 16 bits over any number of positions: cuDNN has it from 9.16 on.
std::string why_not_16_bits(const Config& config) {
  try {
    gpu_ops(config, {})
        ->attention_saved(Attention::fused, {2, config.heads, config.context, config.head_width()},
                          DType::bf16);
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

class GptOnGpu : public test::GpuTest, public testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    test::GpuTest::SetUp();
    const Case& c = GetParam();
    if (IsSkipped() || c.type == DType::f32 || c.attention == Attention::naive) return;
    if (const std::string why = why_not_16_bits(parse_model(c.model)); !why.empty()) {
      GTEST_SKIP() << "NOT RUN: " << why;
    }
  }
};

TEST_P(GptOnGpu, HasTheGradientsOfDouble) {
  const Case& c = GetParam();
  const Config config = parse_model(c.model);
  ModelOptions options = shape(2, config.context);
  options.attention = c.attention;
  const data::Batch batch = random_batch(config, 2, config.context);
  OnCpu<double> wide(config, options);
  for (bool fused : {true, false}) {
    for (bool checkpoints : {false, true}) {
      options.fused = fused;
      options.checkpoints = checkpoints;
      options.logits_bytes = checkpoints ? 1000 : size_t{1} << 20;
      OnGpu gpu(config, options, c.type, checkpoints ? DType::f32 : c.type);
      copy_values(wide.model, gpu.model());
      copy_values(gpu.model(), wide.model);
      const double expected = wide.step(batch);
      EXPECT_NEAR(gpu.step(batch), expected, c.bound);
      expect_near(gpu.model(), wide.model, c.bound);
      // Once more on top: twice as much.
      gpu.step(batch, true);
      wide.step(batch, true);
      expect_near(gpu.model(), wide.model, c.bound);
      wide.step(batch);
      gpu.model().evaluate(gpu.model().upload(batch));
      EXPECT_NEAR(gpu.model().loss(), expected, c.bound);
    }
  }
}

// fp32's bounds are rounding times the depth of the model; the others' that of their type.
INSTANTIATE_TEST_SUITE_P(Cases, GptOnGpu,
                         testing::Values(Case{kGpt2, DType::f32, Attention::fused, 2e-5},
                                         Case{kGpt2, DType::f32, Attention::naive, 2e-5},
                                         Case{kSwiglu, DType::f32, Attention::fused, 2e-5},
                                         Case{kOdd, DType::f32, Attention::fused, 2e-5},
                                         Case{kOdd, DType::f32, Attention::naive, 2e-5},
                                         Case{kWide, DType::f32, Attention::fused, 2e-5},
                                         Case{kGpt2, DType::bf16, Attention::fused, 4e-2},
                                         Case{kSwiglu, DType::bf16, Attention::fused, 4e-2},
                                         Case{kOdd, DType::bf16, Attention::naive, 4e-2},
                                         Case{kSwiglu, DType::f16, Attention::fused, 6e-3},
                                         Case{kSwiglu, DType::f16, Attention::naive, 6e-3}));

class PaddedOnGpu : public GptOnGpu {
 protected:
  PaddedOnGpu() { options_.attention = GetParam().attention; }

  // In one piece and in several: losses, gradients and accuracies of what counts.
  void check(const data::Batch& batch) {
    for (size_t logits : {size_t{1} << 20, size_t{1000}}) {
      options_.logits_bytes = logits;
      OnCpu<double> wide(config_, options_);
      OnGpu gpu(config_, options_, GetParam().type, DType::f32);
      copy_values(wide.model, gpu.model());
      copy_values(gpu.model(), wide.model);
      const double loss = wide.step(batch);
      EXPECT_NEAR(gpu.step(batch), loss, GetParam().bound);
      expect_near(gpu.model(), wide.model, GetParam().bound);
      gpu.model().evaluate(gpu.model().upload(batch));
      wide.model.evaluate(wide.model.upload(batch));
      EXPECT_NEAR(gpu.model().loss(), loss, GetParam().bound);
      // In 16 bits several logits may be the largest.
      const double share = GetParam().type == DType::f32 ? 1e-6 : 0.2;
      EXPECT_NEAR(gpu.model().accuracy(), wide.model.accuracy(), share);
    }
  }

  // Targets that are the likeliest in every other row.
  void make_some_right(data::Batch& batch) {
    OnCpu<double> wide(config_, options_);
    const Tokens& on = wide.model.upload(batch);
    for (size_t row = 0; row < batch.targets.size(); row += 2) {
      if (batch.targets[row] < 0) continue;
      const std::vector<double> found = wide.model.logits(on, static_cast<int64_t>(row));
      batch.targets[row] = static_cast<int32_t>(std::ranges::max_element(found) - found.begin());
    }
  }

  const Config config_ = parse_model(GetParam().model);
  const size_t time_ = static_cast<size_t>(config_.context);
  ModelOptions options_ = shape(3, config_.context);
};

TEST_P(PaddedOnGpu, IsAsInDouble) {
  data::Batch batch =
      padded(config_, random_batch(config_, 3, config_.context), {time_, 1, time_ / 2});
  make_some_right(batch);
  check(batch);
}

TEST_P(PaddedOnGpu, HasNothingOfPadding) {
  const data::Batch batch = random_batch(config_, 3, config_.context);
  OnGpu zeros(config_, options_, GetParam().type, GetParam().type),
      others(config_, options_, GetParam().type, GetParam().type);
  for (OnGpu* gpu : {&zeros, &others}) gpu->model().initialize(1);
  const std::vector<size_t> lengths = {time_ / 2, 2, time_};
  EXPECT_EQ(zeros.step(padded(config_, batch, lengths)),
            others.step(padded(config_, batch, lengths, 11)));
  for (size_t i = 0; i < zeros.model().size(); ++i) {
    EXPECT_EQ(zeros.model().grad_values(i), others.model().grad_values(i))
        << zeros.model().spec(i).name;
  }
}

TEST_P(PaddedOnGpu, IsZeroWhereNothingCounts) {
  const data::Batch batch = padded(config_, random_batch(config_, 3, config_.context), {0, 0, 0});
  OnGpu gpu(config_, options_, GetParam().type, GetParam().type);
  gpu.model().initialize(1);
  EXPECT_EQ(gpu.step(batch), 0);
  for (size_t i = 0; i < gpu.model().size(); ++i) {
    EXPECT_THAT(gpu.model().grad_values(i), testing::Each(0)) << gpu.model().spec(i).name;
  }
  gpu.model().evaluate(gpu.model().upload(batch));
  EXPECT_EQ(gpu.model().loss(), 0);
  EXPECT_EQ(gpu.model().accuracy(), 0);
}

// All logits are 0 where all parameters are.
TEST_P(PaddedOnGpu, TheFirstOfEqualLogitsIsTheLargest) {
  OnGpu gpu(config_, options_, GetParam().type, GetParam().type);
  data::Batch batch = padded(config_, random_batch(config_, 3, config_.context), {5, 0, 3});
  for (size_t i = 0; i < batch.targets.size(); ++i) {
    if (batch.targets[i] >= 0) batch.targets[i] = i % time_ < 2 ? 0 : static_cast<int32_t>(i % 12);
  }
  batch.targets[4] = 12;
  const auto right = std::ranges::count(batch.targets, 0);
  for (size_t i = 0; i < gpu.model().size(); ++i) {
    gpu.model().set_values(i, std::vector<double>(gpu.model().values(i).size()));
  }
  gpu.model().evaluate(gpu.model().upload(batch));
  EXPECT_FLOAT_EQ(static_cast<float>(gpu.model().accuracy()), static_cast<float>(right) / 8);
}

INSTANTIATE_TEST_SUITE_P(Cases, PaddedOnGpu,
                         testing::Values(Case{kGpt2, DType::f32, Attention::fused, 2e-5},
                                         Case{kOdd, DType::f32, Attention::naive, 2e-5},
                                         Case{kSwiglu, DType::bf16, Attention::fused, 4e-2},
                                         Case{kSwiglu, DType::f16, Attention::naive, 6e-3}));

class GptTrainer : public test::GpuTest {
 protected:
  void SetUp() override {
    test::GpuTest::SetUp();
    if (IsSkipped()) return;
    if (const std::string why = why_not_16_bits(parse_model(kSwiglu)); !why.empty()) {
      GTEST_SKIP() << "NOT RUN: " << why;
    }
  }
  static TrainerOptions options(Compute compute, bool compiled) {
    TrainerOptions o;
    o.config = parse_model(kSwiglu);
    o.device = {Device::Kind::cuda, 0};
    o.batch = 2;
    o.compute = compute;
    o.compiled = compiled;
    o.hyper = {{"lr", 1e-2}};
    o.clip_norm = 1;
    return o;
  }
  static std::vector<double> train(Trainer& trainer, int steps, bool shorter = false) {
    std::vector<double> losses;
    const Config& config = trainer.options().config;
    for (int i = 0; i < steps; ++i) {
      const auto seed = static_cast<uint64_t>(i);
      data::Batch batch = random_batch(config, 2, trainer.options().time, seed);
      if (shorter) batch = padded(config, batch, {9 - seed * 4 % 7, 3 + seed % 5});
      trainer.step({&batch, 1});
      losses.push_back(trainer.loss());
      EXPECT_GE(trainer.times().forward, 0);
      EXPECT_GE(trainer.times().backward, 0);
      EXPECT_GE(trainer.times().optimizer, 0);
    }
    return losses;
  }
};

TEST_F(GptTrainer, InAGraphGivesTheBitsOfTheFirstSteps) {
  for (Compute compute : {Compute::fp32, Compute::bf16}) {
    Trainer graph(options(compute, true));
    TrainerOptions o = options(compute, true);
    Trainer again(o);
    EXPECT_EQ(train(graph, 5), train(again, 5));
    for (size_t i = 0; i < graph.model().size(); ++i) {
      EXPECT_EQ(graph.model().values(i), again.model().values(i));
    }
  }
}

TEST_F(GptTrainer, FollowsTheCpu) {
  TrainerOptions cpu = options(Compute::fp32, true);
  cpu.device = {};
  Trainer expected(cpu), narrow(options(Compute::bf16, true)), eager(options(Compute::fp32, false)),
      compiled(options(Compute::fp32, true));
  const std::vector<double> losses = train(expected, 6);
  const std::vector<double> in_fp32 = train(compiled, 6), kernel_by_kernel = train(eager, 6),
                            in_bf16 = train(narrow, 6);
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(in_fp32[i], losses[i], 1e-4);
    EXPECT_NEAR(kernel_by_kernel[i], losses[i], 1e-4);
    EXPECT_NEAR(in_bf16[i], losses[i], 3e-2);
  }
}

// A recorded step is given other numbers of targets than it was recorded with.
TEST_F(GptTrainer, CountsTargetsAnewInEveryStep) {
  TrainerOptions cpu = options(Compute::fp32, true);
  cpu.device = {};
  Trainer expected(cpu), eager(options(Compute::fp32, false)), graph(options(Compute::fp32, true)),
      narrow(options(Compute::bf16, true));
  const std::vector<double> losses = train(expected, 6, true);
  const std::vector<double> kernel_by_kernel = train(eager, 6, true),
                            in_graph = train(graph, 6, true), in_bf16 = train(narrow, 6, true);
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(in_graph[i], losses[i], 1e-4);
    EXPECT_NEAR(kernel_by_kernel[i], losses[i], 1e-4);
    EXPECT_NEAR(in_bf16[i], losses[i], 5e-2);
  }
}

TEST_F(GptTrainer, UpdatesDuringBackwardGiveTheSameBits) {
  // Two layers, and more than have gradients at a time; in a graph and kernel by kernel.
  for (const auto& [model, compiled] : {std::pair{std::string(kSwiglu), true},
                                        {std::string(kGpt2), true},
                                        {std::string(kSwiglu) + ":layers=8", true},
                                        {std::string(kGpt2) + ":layers=7", false}}) {
    TrainerOptions o = options(Compute::bf16, compiled);
    o.config = parse_model(model);
    o.clip_norm = 0;
    Trainer after(o);
    o.overlap = true;
    Trainer during(o);
    EXPECT_EQ(during.model().grad_bytes_saved() > 0, o.config.layers > 3);
    EXPECT_EQ(train(during, 5), train(after, 5));
    for (size_t i = 0; i < after.model().size(); ++i) {
      EXPECT_EQ(during.model().values(i), after.model().values(i)) << after.model().spec(i).name;
    }
    EXPECT_EQ(during.optimizer()->steps(0), 5);
  }
}

TEST_F(GptTrainer, DoesNotUpdateDuringBackwardWhatIsToBeClippedOrScaled) {
  TrainerOptions o = options(Compute::bf16, true);
  o.overlap = true;
  EXPECT_THROW(Trainer{o}, Error);
  o = options(Compute::fp16, true);
  o.clip_norm = 0;
  o.overlap = true;
  EXPECT_THROW(Trainer{o}, Error);
}

// In fp16 no gradient of a loss times 2^30 is finite: the scale falls by itself, in a graph too.
TEST_F(GptTrainer, SkipsStepsUntilTheLossScaleFits) {
  for (bool compiled : {false, true}) {
    TrainerOptions o = options(Compute::fp16, compiled);
    o.loss_scale = 0x1p30;
    Trainer trainer(o);
    const std::vector<double> values = trainer.model().values(0);
    train(trainer, 4);
    EXPECT_EQ(trainer.optimizer()->skipped(), 4);
    EXPECT_EQ(trainer.loss_scale()->scale, 0x1p26f);
    EXPECT_EQ(trainer.model().values(0), values);
    train(trainer, 20);
    const LossScale scale = *trainer.loss_scale();
    EXPECT_EQ(trainer.optimizer()->skipped() + trainer.optimizer()->steps(0), 24);
    EXPECT_GT(trainer.optimizer()->steps(0), 5);
    EXPECT_EQ(scale.skipped, trainer.optimizer()->skipped());
    EXPECT_EQ(scale.scale, std::ldexp(1.0f, 30 - static_cast<int>(scale.skipped)));
    EXPECT_NE(trainer.model().values(0), values);
  }
}

TEST_F(GptTrainer, InFp16FollowsTheCpu) {
  TrainerOptions cpu = options(Compute::fp32, true);
  cpu.device = {};
  TrainerOptions o = options(Compute::fp16, true);
  o.loss_scale = 256;
  Trainer expected(cpu), narrow(o);
  const std::vector<double> losses = train(expected, 6), in_fp16 = train(narrow, 6);
  EXPECT_EQ(narrow.optimizer()->skipped(), 0);
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(in_fp16[i], losses[i], 5e-3);
}

TEST_F(GptTrainer, TakesWhatWasPlanned) {
  for (const Compute compute : {Compute::fp32, Compute::bf16}) {
    for (const Attention attention : {Attention::naive, Attention::fused}) {
      TrainerOptions o = options(compute, true);
      o.attention = attention;
      const MemoryUse planned = planned_memory(o), taken = Trainer(o).memory();
      for (int c = 0; c < kMemoryClasses; ++c) EXPECT_EQ(planned.of[c], taken.of[c]) << c;
    }
  }
}

TEST_F(GptTrainer, TakesTheSameForOneTensorAtATimeAndAllAtOnce) {
  const TrainerOptions o = settled(options(Compute::fp32, true));
  Trainer trainer(o);
  for (const Mode mode : {Mode::single, Mode::multi}) {
    Options how = optimizer_options(o);
    how.mode = mode;
    Optimizer other(o.optimizer, how);
    for (const ParamGroup& group : param_groups(o, trainer.model())) {
      other.add_group(group.params, group.options);
    }
    other.step();
    EXPECT_EQ(static_cast<size_t>(other.state_bytes()), planned_memory(o)[MemoryClass::state]);
  }
}

TEST_F(GptTrainer, GoesOnFromOtherLibrariesOnlyWhenTold) {
  const test::Folder folder;
  const std::string path = folder / "run";
  TrainerOptions o = tiny_trainer();
  o.device = {Device::Kind::cuda, 0};
  const data::SyntheticCorpus corpus = tiny_corpus();
  RunOptions r;
  r.steps = 2;
  r.checkpoint = path;
  {
    Trainer trainer(o);
    run(trainer, corpus, r);
    const auto file = io::SafetensorsFile::open(path);
    std::vector<io::TensorOut> tensors;
    for (const auto& [name, t] : file.tensors()) {
      tensors.push_back({name, t.dtype, t.shape, t.data, t.bytes});
    }
    auto metadata = file.metadata();
    metadata["algorithms"] = "cublasLt 1";
    io::write_safetensors(folder / "other", tensors, metadata);
  }
  std::filesystem::rename(folder / "other", path);
  r.resume = true;
  r.steps = 3;
  Trainer refused(o);
  try {
    run(refused, corpus, r);
    FAIL() << "nothing was refused";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("chosen for 'cublasLt 1'"));
    EXPECT_THAT(e.what(), testing::HasSubstr("--other-libraries goes on"));
  }
  r.other_libraries = true;
  Trainer told(o);
  EXPECT_EQ(run(told, corpus, r).progress.step, 3);
}

TEST_F(GptTrainer, SaysWhatDoesNotFit) {
  TrainerOptions o = options(Compute::fp32, true);
  o.batch = int64_t{1} << 24;
  o.attention = Attention::naive;
  try {
    Trainer trainer(o);
    FAIL() << "nothing was refused";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::out_of_memory);
    EXPECT_THAT(e.what(), testing::HasSubstr("more than are free: parameters 0.00"));
  }
}

}  // namespace
}  // namespace gallop::gpt
