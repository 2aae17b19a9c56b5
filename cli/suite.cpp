// SPDX-License-Identifier: MIT
#include "bench/machine.h"
#include "bench/nvml.h"
#include "cli/common.h"
#include "cuda/memory.h"
#include "cuda/timing.h"
#include "gallop/error.h"
#include "lab/adam_grid.h"
#include "lab/adan_gpt2.h"
#include "lab/adan_memory.h"
#include "lab/signals.h"

namespace gallop::cli {
namespace {

void add_adam_grid(CLI::App& suite, int& exit_code) {
  struct State {
    Output output;
    Where where;
    RuleFiles rules;
    lab::AdamGridOptions grid;
    std::vector<std::string> with, torch_modes = {"single", "foreach", "fused", "compiled"};
  };
  auto s = std::make_shared<State>();
  s->grid.sampler.min_samples = 6;
  s->grid.sampler.time_limit_s = 0.5;
  CLI::App* grid = suite.add_subcommand(
      "adam-grid",
      "Adam over 30 cells of tensor counts and sizes: compiled, unfused, single and "
      "multi, with a reading of the table");
  grid->add_option("--optimizer", s->grid.optimizer, "Another optimizer than adam")
      ->capture_default_str();
  s->rules.add_to(*grid);
  grid->add_option("--tensors", s->grid.tensors, "Tensor counts")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1000000}));
  grid->add_option("--size", s->grid.sizes, "Elements in each tensor")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  grid->add_option("--with", s->with, "Also run a peer here and merge its columns: torch")
      ->delimiter(',')
      ->check(CLI::IsMember({"torch"}));
  grid->add_option("--torch-modes", s->torch_modes, "Which of torch's ways to step")
      ->delimiter(',')
      ->check(CLI::IsMember({"single", "foreach", "fused", "compiled"}))
      ->capture_default_str();
  grid->add_option("--time-limit", s->grid.sampler.time_limit_s,
                   "Seconds for each contender and cell")
      ->capture_default_str();
  s->where.add_to(*grid);
  s->output.add_to(*grid);
  s->output.keep_as(*grid, "suite adam-grid");
  grid->callback([s, &exit_code] {
    if (s->where.parsed().kind != Device::Kind::cpu) {
      throw Error(ErrorCode::unsupported, "suite adam-grid runs on the CPU, expected device cpu");
    }
    if (s->rules.given()) s->grid.optimizer = s->rules.names().back();
    s->grid.threads = s->where.threads;
    s->grid.sampler.seed = s->where.seed;
    if (!s->with.empty()) s->grid.torch_modes = s->torch_modes;
    exit_code = s->output.measure([&] { return std::vector{lab::adam_grid(s->grid)}; });
  });
}

void add_adan_gpt2(CLI::App& suite, int& exit_code) {
  struct State {
    Output output;
    Where where;
    std::string part = "all", attention = "naive";
    lab::AdanGpt2Options time;
    lab::AdanMemoryOptions memory;
  };
  auto s = std::make_shared<State>();
  s->time.sampler.time_limit_s = 0.5;
  CLI::App* adan = suite.add_subcommand(
      "adan-gpt2",
      "Adam and Adan over 25 GPT-2 shapes: time of updates, one tensor at a time and all at once, "
      "and memory of training; on the GPU if there is one");
  adan->add_option("--part", s->part, "What to show: time, memory or all")
      ->check(CLI::IsMember({"time", "memory", "all"}))
      ->capture_default_str();
  adan->add_option("--steps", s->time.steps, "Time: steps that the total columns stand for")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  adan->add_option("--most-parameters", s->time.most_parameters,
                   "Time: leave out larger models; default: what memory holds");
  adan->add_option("--time-limit", s->time.sampler.time_limit_s,
                   "Time: seconds for each contender and shape")
      ->capture_default_str();
  adan->add_option("--attention", s->attention,
                   "Memory: naive keeps whole score matrices, fused does not")
      ->check(CLI::IsMember({"naive", "fused"}))
      ->capture_default_str();
  adan->add_option("--batch", s->memory.batch, "Memory: sequences in a batch")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  s->where.add_to(*adan);
  s->output.add_to(*adan);
  s->output.keep_as(*adan, "suite adan-gpt2");
  adan->callback([s, adan, &exit_code] {
    s->where.prefer_gpu(*adan);
    s->time.device = s->memory.device = s->where.parsed();
    s->time.threads = s->memory.threads = s->where.threads;
    s->time.sampler.seed = s->where.seed;
    const bool gpu = s->time.device.kind == Device::Kind::cuda;
    s->memory.memory_bytes =
        gpu ? cuda::memory_bytes(s->time.device.index) : bench::describe_machine().memory_bytes;
    s->memory.attention = s->attention == "naive" ? gpt::Attention::naive : gpt::Attention::fused;
    if (adan->count("--most-parameters") == 0) {
      // Two contenders of 24 bytes a parameter and the ceiling's arrays at a time.
      s->time.most_parameters = s->memory.memory_bytes / (gpu ? 56 : 100);
    }
    exit_code = s->output.measure([&] {
      std::vector<lab::Table> tables;
      if (s->part != "memory") tables.push_back(lab::adan_gpt2(s->time));
      if (s->part != "time" && !lab::Signals::asked()) {
        for (lab::Table& table : lab::adan_memory(s->memory)) tables.push_back(std::move(table));
      }
      return tables;
    });
  });
}

}  // namespace

void add_suite(CLI::App& app, int& exit_code) {
  CLI::App* suite = app.add_subcommand("suite", "Whole comparisons that people make by hand");
  suite->require_subcommand(1);
  add_adam_grid(*suite, exit_code);
  add_adan_gpt2(*suite, exit_code);
  add_cs336(*suite, exit_code);
  add_adamw_8bit(*suite, exit_code);
  add_suite_profile(*suite, exit_code);
}

}  // namespace gallop::cli
