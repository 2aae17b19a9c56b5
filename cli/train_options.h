// SPDX-License-Identifier: MIT
// What gallop train takes.
#pragma once

#include <optional>
#include <string>

#include "cli/common.h"
#include "gpt/run.h"
#include "gpt/sample.h"

namespace gallop::cli {

struct TrainOptions {
  TrainOptions();
  CLI::Option* add_to(CLI::App& app);  // returns --optimizer

  gpt::TrainerOptions for_trainer() const;
  void check(const gpt::Config& config) const;  // what can be known before anything is opened

  Output output;
  Where where;
  HyperFlags hyper;
  RuleFiles rules;
  std::string model = "nano", data, optimizer = "adamw", state = "fp32", schedule = "constant";
  std::string precision = "fp32", rounding = "remainder", mode = "compiled", attention = "fused";
  std::optional<int64_t> warmup, eval_every;
  double validation_share = 0.1;
  gpt::TrainerOptions trainer;
  gpt::RunOptions run;
  std::string log, export_file, import_file, dump_file, trace;
  int64_t log_every = 1;
  std::optional<std::string> prompt;
  gpt::SampleOptions sample;

 private:
  Schedule whole_schedule() const;
  void add_optimization(CLI::App& app);
  void add_computation(CLI::App& app);
  void add_files(CLI::App& app);
  void add_sampling(CLI::App& app);
};

}  // namespace gallop::cli
