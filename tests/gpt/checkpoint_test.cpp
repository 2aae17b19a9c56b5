// SPDX-License-Identifier: MIT
#include "gpt/checkpoint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/random.h"
#include "folder.h"
#include "gallop/error.h"
#include "gpt/tiny_run.h"
#include "io/safetensors.h"

extern char** environ;

namespace gallop::gpt {
namespace {

using test::Folder;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

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
};

class Resuming : public testing::TestWithParam<Kind> {
 protected:
  TrainerOptions options() const {
    TrainerOptions o = tiny_trainer(GetParam().optimizer, GetParam().lr);
    o.state = parse_state_policy(GetParam().state);
    o.schedule = parse_schedule(GetParam().schedule);
    o.accumulation = 2;
    return o;
  }
};

TEST_P(Resuming, GivesTheSameBits) {
  const Folder folder;
  const data::SyntheticCorpus corpus = tiny_corpus();
  std::vector<double> whole_losses, losses;
  const auto into = [](std::vector<double>& to) {
    RunCallbacks c;
    c.step = [&](const StepReport& r) { to.push_back(r.loss); };
    return c;
  };
  Trainer whole(options());
  const RunResult expected =
      run(whole, corpus, with_file(folder / "whole", 12), into(whole_losses));
  {
    Trainer first(options());
    RunCallbacks c = into(losses);
    c.stop = [&] { return losses.size() == 4; };  // in the fifth
    EXPECT_EQ(run(first, corpus, with_file(folder / "run", 12), c).progress.step, 5);
  }
  Trainer second(options());
  const RunResult result = run(second, corpus, with_file(folder / "run", 12, true), into(losses));
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
    testing::Values(Kind{"adamw", "adamw"}, Kind{"cosine", "adamw", "fp32", "cosine:total=12"},
                    Kind{"bits8", "adamw", "8bit"}, Kind{"bf16", "adamw", "bf16"},
                    Kind{"schedulefree", "schedulefree_adamw"},
                    Kind{"adafactor", "adafactor", "fp32", "constant", 0}, Kind{"muon", "muon"}),
    [](const auto& at) { return at.param.name; });

class CheckpointFile : public testing::Test {
 protected:
  CheckpointFile() {
    Trainer trainer(tiny_trainer());
    run(trainer, corpus_, with_file(path_, 3));
  }

  std::string refusal(const TrainerOptions& o, RunOptions r) {
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
            path_ + ": batch is 4, expected 2 as in the run that is to go on from it");
  EXPECT_THAT(differs([](auto& o) { o.config.layers = 2; }),
              HasSubstr("model.layers is 1, expected 2"));
  EXPECT_THAT(differs([](auto& o) { o.optimizer = "lion"; }),
              HasSubstr("optimizer is adamw, expected lion"));
  EXPECT_THAT(differs([](auto& o) {
                o.hyper = {{"lr", 2e-3}};
              }),
              HasSubstr("lr is 0.001, expected 0.002"));
  EXPECT_THAT(differs([](auto& o) { o.schedule = parse_schedule("cosine:total=6"); }),
              HasSubstr("schedule is constant, expected cosine:total=6"));
  EXPECT_THAT(differs([](auto& o) { o.state = StateFormat::bf16; }), HasSubstr("state is "));
  EXPECT_THAT(differs([](auto& o) { o.seed = 7; }), HasSubstr("seed is 1, expected 7"));
  RunOptions other = r;
  other.data_seed = 7;
  EXPECT_THAT(refusal(tiny_trainer(), other), HasSubstr("data_seed is 1, expected 7"));
  EXPECT_THAT(refusal(tiny_trainer(), with_file(path_, 2, true)),
              HasSubstr("2 steps in all, expected at least the 3"));
  data::SyntheticOptions language = data::parse_synthetic(kTinyData);
  language.seed = 9;
  corpus_ = data::SyntheticCorpus(language);
  EXPECT_THAT(refusal(tiny_trainer(), r), HasSubstr("data is "));
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
  EXPECT_EQ(file.metadata().at("algorithms"), "");
  ASSERT_NE(file.find("h.0.attn.c_attn.weight"), nullptr);
  EXPECT_EQ(file.find("h.0.attn.c_attn.weight")->shape, (std::vector<int64_t>{96, 32}));
}

#ifndef __SANITIZE_THREAD__
class Killed : public testing::Test {
 protected:
  static constexpr int kSteps = 60;
  pid_t start(const std::string& file, bool resume) const {
    std::vector<std::string> words = {
        GALLOP_PROGRAM,   "train",   "--model",      kTinyModel,
        "--data",         kTinyData, "--steps",      std::to_string(kSteps),
        "--batch",        "4",       "--threads",    "1",
        "--save-every",   "1",       "--eval-every", "10",
        "--eval-batches", "2",       "--checkpoint", file};
    if (resume) words.emplace_back("--resume");
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    for (int fd : {STDOUT_FILENO, STDERR_FILENO}) {
      posix_spawn_file_actions_addopen(&quiet, fd, "/dev/null", O_WRONLY, 0);
    }
    pid_t pid = 0;
    EXPECT_EQ(posix_spawn(&pid, GALLOP_PROGRAM, &quiet, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&quiet);
    return pid;
  }
  Folder folder_;
};

// Each time at some moment after it has saved again, so that all of them together come to an end.
TEST_F(Killed, AtAnyMomentItGoesOnToTheSameEnd) {
  int status = 0;
  ASSERT_GT(waitpid(start(folder_ / "whole", false), &status, 0), 0);
  ASSERT_EQ(status, 0);
  const std::string file = folder_ / "run";
  const auto saved = [&] {
    std::error_code none;
    return fs::last_write_time(file, none);
  };
  int kills = 0;
  bool ended = false;
  while (!ended) {
    ASSERT_LE(kills, kSteps);
    const auto before = saved();
    const pid_t pid = start(file, fs::exists(file));
    while (!ended && saved() == before) {
      ended = waitpid(pid, &status, WNOHANG) == pid;
      usleep(100);
    }
    if (ended) break;
    usleep(static_cast<useconds_t>(combine(1, static_cast<Bits64>(kills)) % 6000));
    kill(pid, SIGKILL);
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ended = WIFEXITED(status);
    kills += ended ? 0 : 1;
  }
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_GT(kills, 0);
  const auto a = io::SafetensorsFile::open(folder_ / "whole"), b = io::SafetensorsFile::open(file);
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const auto& [name, t] : a.tensors()) {
    EXPECT_EQ(std::memcmp(t.data, b.find(name)->data, t.bytes), 0) << name;
  }
  EXPECT_EQ(a.metadata().at("loss"), b.metadata().at("loss"));
  EXPECT_EQ(a.metadata().at("smoothed"), b.metadata().at("smoothed"));
  EXPECT_EQ(content(folder_ / "whole.optimizer.60"), content(folder_ / "run.optimizer.60"));
  int left = 0;  // the run and its state, and the other
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_.path())) ++left;
  EXPECT_EQ(left, 4);
}
#endif

}  // namespace
}  // namespace gallop::gpt
