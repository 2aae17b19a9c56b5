// SPDX-License-Identifier: MIT
#include "gpt/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "folder.h"
#include "gallop/error.h"
#include "gpt/tiny_run.h"
#include "io/safetensors.h"

namespace gallop::gpt {
namespace {

using test::Folder;
using testing::HasSubstr;
namespace fs = std::filesystem;

RunOptions with_file(const std::string& path, int64_t steps, bool resume = false) {
  RunOptions o;
  o.steps = steps;
  o.eval_every = 2;
  o.eval_batches = 2;
  o.checkpoint = path;
  o.resume = resume;
  return o;
}

struct Kind {
  const char* name;
  const char* optimizer;
  const char* state = "fp32";
  const char* schedule = "constant";
  double lr = 1e-3;
  Rounding rounding = Rounding::nearest;  // another: bf16, on a GPU
  int64_t min_length = 0;

  friend std::ostream& operator<<(std::ostream& to, const Kind& k) { return to << k.name; }
};

class Resuming : public testing::TestWithParam<Kind> {
 protected:
  bool narrow() const { return GetParam().rounding != Rounding::nearest; }
  TrainerOptions options() const {
    TrainerOptions o = tiny_trainer(GetParam().optimizer, GetParam().lr);
    o.state = parse_state_policy(GetParam().state);
    o.schedule = parse_schedule(GetParam().schedule);
    o.accumulation = 2;
    if (narrow()) {
      o.compute = Compute::bf16;
      o.rounding = GetParam().rounding;
    }
    return o;
  }
  static RunOptions into_file(const std::string& path, bool resume = false) {
    RunOptions o = with_file(path, 12, resume);
    o.min_length = GetParam().min_length;
    return o;
  }
};

TEST_P(Resuming, GivesTheSameBits) {
  if (narrow() && test_device().kind == Device::Kind::cpu) GTEST_SKIP() << "bf16 is for GPUs";
  const Folder folder;
  const data::SyntheticCorpus corpus = tiny_corpus();
  std::vector<double> whole_losses, losses;
  const auto into = [](std::vector<double>& to) {
    RunCallbacks c;
    c.step = [&](const StepReport& r) { to.push_back(r.loss); };
    return c;
  };
  Trainer whole(options());
  const RunResult expected = run(whole, corpus, into_file(folder / "whole"), into(whole_losses));
  {
    Trainer first(options());
    RunCallbacks c = into(losses);
    c.stop = [&] { return losses.size() == 4; };  // in the fifth
    EXPECT_EQ(run(first, corpus, into_file(folder / "run"), c).progress.step, 5);
  }
  Trainer second(options());
  const RunResult result = run(second, corpus, into_file(folder / "run", true), into(losses));
  EXPECT_EQ(result.first, 5);
  EXPECT_EQ(bits(whole), bits(second));
  EXPECT_EQ(losses, whole_losses);
  EXPECT_EQ(result.progress.smoothed.value(), expected.progress.smoothed.value());
  EXPECT_EQ(result.progress.validation, expected.progress.validation);
  const auto a = io::SafetensorsFile::open(folder / "whole");
  const auto b = io::SafetensorsFile::open(folder / "run");
  for (const auto& [key, value] : a.metadata()) {
    if (key == "optimizer_file") continue;
    EXPECT_EQ(value, b.metadata().at(key)) << key;
  }
  EXPECT_EQ(content(folder / "whole.optimizer.12"), content(folder / "run.optimizer.12"));
  EXPECT_FALSE(fs::exists(folder / "run.optimizer.5"));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, Resuming,
    testing::Values(Kind{"adamw", "adamw"},
                    Kind{"padded", "adamw", "fp32", "constant", 1e-3, Rounding::nearest, 3},
                    Kind{"cosine", "adamw", "fp32", "cosine:total=12"},
                    Kind{"bits8", "adamw", "8bit"}, Kind{"bf16", "adamw", "bf16"},
                    Kind{"schedulefree", "schedulefree_adamw"},
                    Kind{"adafactor", "adafactor", "fp32", "constant", 0}, Kind{"muon", "muon"},
                    Kind{"master", "adamw", "fp32", "constant", 1e-3, Rounding::master},
                    Kind{"remainder", "adamw", "fp32", "constant", 1e-3, Rounding::remainder},
                    Kind{"stochastic", "adamw", "bf16", "constant", 1e-3, Rounding::stochastic},
                    Kind{"averaged_master", "schedulefree_adamw", "fp32", "constant", 1e-3,
                         Rounding::master}),
    [](const auto& at) { return at.param.name; });

class CheckpointFile : public testing::Test {
 protected:
  CheckpointFile() {
    Trainer trainer(tiny_trainer());
    run(trainer, corpus_, with_file(path_, 3));
  }

  std::string refusal(const TrainerOptions& o, const RunOptions& r) {
    Trainer trainer(o);
    const auto before = bits(trainer);
    try {
      run(trainer, corpus_, r);
    } catch (const Error& e) {
      EXPECT_EQ(before, bits(trainer)) << "something was loaded";
      return e.what();
    }
    return "nothing was refused";
  }
  std::string refusal() { return refusal(tiny_trainer(), with_file(path_, 6, true)); }

  Folder folder_;
  data::SyntheticCorpus corpus_ = tiny_corpus();
  std::string path_ = folder_ / "run";
};

TEST_F(CheckpointFile, IsNotOverwrittenUnasked) {
  EXPECT_EQ(refusal(tiny_trainer(), with_file(path_, 6)),
            path_ + " exists; --resume goes on with it, or name another file");
  EXPECT_THAT(refusal(tiny_trainer(), with_file(folder_ / "none", 6, true)),
              HasSubstr("none is not there, expected a checkpoint"));
}

TEST_F(CheckpointFile, OfAnotherRunIsRefused) {
  const RunOptions r = with_file(path_, 6, true);
  const auto differs = [&](const auto& change) {
    TrainerOptions o = tiny_trainer();
    change(o);
    return refusal(o, r);
  };
  EXPECT_EQ(differs([](auto& o) { o.batch = 2; }),
            path_ + " has batch 4 and this run 2, expected the same to go on from it");
  EXPECT_THAT(differs([](auto& o) { o.config.layers = 2; }),
              HasSubstr("has model.layers 1 and this run 2"));
  EXPECT_THAT(differs([](auto& o) { o.optimizer = "lion"; }),
              HasSubstr("has optimizer adamw and this run lion"));
  EXPECT_THAT(differs([](auto& o) {
                o.hyper = {{"lr", 2e-3}};
              }),
              HasSubstr("has lr 0.001 and this run 0.002"));
  EXPECT_THAT(differs([](auto& o) { o.schedule = parse_schedule("cosine:total=6"); }),
              HasSubstr("has schedule constant and this run cosine:total=6"));
  EXPECT_THAT(differs([](auto& o) { o.state = StateFormat::bf16; }),
              HasSubstr("has state fp32 and this run bf16"));
  EXPECT_THAT(differs([](auto& o) { o.seed = 7; }), HasSubstr("has seed 1 and this run 7"));
  RunOptions other = r;
  other.data_seed = 7;
  EXPECT_THAT(refusal(tiny_trainer(), other), HasSubstr("has data_seed 1 and this run 7"));
  other = r;
  other.min_length = 3;
  EXPECT_THAT(refusal(tiny_trainer(), other), HasSubstr("has context 16 and this run 3 to 16"));
  EXPECT_THAT(refusal(tiny_trainer(), with_file(path_, 2, true)),
              HasSubstr("2 steps in all, expected at least the 3"));
  data::SyntheticOptions language = data::parse_synthetic(kTinyData);
  language.seed = 9;
  corpus_ = data::SyntheticCorpus(language);
  EXPECT_THAT(refusal(tiny_trainer(), r), HasSubstr("has data synthetic-"));
}

TEST_F(CheckpointFile, DamagedOrForeignIsRefused) {
  const std::string good = content(path_);
  for (size_t size : {size_t{0}, size_t{7}, size_t{100}, good.size() / 2, good.size() - 1}) {
    std::ofstream(path_, std::ios::binary) << good.substr(0, size);
    EXPECT_THAT(refusal(), HasSubstr(path_)) << size;
  }
  std::ofstream(path_, std::ios::binary) << "not a checkpoint at all";
  EXPECT_THAT(refusal(), HasSubstr(path_));
  fs::copy_file(path_ + ".optimizer.3", path_, fs::copy_options::overwrite_existing);
  EXPECT_THAT(refusal(), HasSubstr("format is 'gallop.optimizer', expected 'gallop.training'"));
  io::write_safetensors(path_, {}, {});
  EXPECT_THAT(refusal(), HasSubstr("metadata 'format' is missing"));
}

TEST_F(CheckpointFile, NeedsTheOptimizersFile) {
  const std::string state = path_ + ".optimizer.3", good = content(state);
  std::ofstream(state, std::ios::binary) << good.substr(0, good.size() / 2);
  EXPECT_THAT(refusal(), HasSubstr(state));
  fs::remove(state);
  EXPECT_THAT(refusal(), HasSubstr(state + ", which is not there"));
}

TEST_F(CheckpointFile, MayBeMovedWithItsOptimizer) {
  fs::create_directory(folder_ / "there");
  fs::rename(path_, folder_ / "there/run");
  fs::rename(path_ + ".optimizer.3", folder_ / "there/run.optimizer.3");
  Trainer trainer(tiny_trainer());
  EXPECT_EQ(run(trainer, corpus_, with_file(folder_ / "there/run", 4, true)).progress.step, 4);
}

TEST_F(CheckpointFile, SaysWhatItIs) {
  const auto file = io::SafetensorsFile::open(path_);
  EXPECT_EQ(file.metadata().at("step"), "3");
  EXPECT_EQ(file.metadata().at("setting.model.width"), "32");
  EXPECT_EQ(file.metadata().at("setting.data"), corpus_.fingerprint());
  // What libraries chose on a GPU; a CPU has nothing to choose.
  const bool gpu = test_device().kind == Device::Kind::cuda;
  EXPECT_EQ(file.metadata().at("algorithms").starts_with("cublasLt "), gpu);
  ASSERT_NE(file.find("h.0.attn.c_attn.weight"), nullptr);
  EXPECT_EQ(file.find("h.0.attn.c_attn.weight")->shape, (std::vector<int64_t>{96, 32}));
}

}  // namespace
}  // namespace gallop::gpt
