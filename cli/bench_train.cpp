// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "bench/train_bench.h"
#include "cli/common.h"
#include "gallop/error.h"

namespace gallop::cli {
namespace {

// Formats separated by commas, or one policy, which has commas of its own.
std::vector<std::string> state_list(const std::vector<std::string>& given) {
  std::vector<std::string> out;
  for (const std::string& text : given) {
    if (text.find('=') != std::string::npos) {
      out.push_back(text);
      continue;
    }
    for (const std::string& part : CLI::detail::split(text, ',')) out.push_back(part);
  }
  return out;
}

CLI::Validator at_least_one() {
  CLI::Validator v = CLI::Range(int64_t{1}, int64_t{1} << 40);
  v.description("");
  return v;
}

}  // namespace

void add_train_bench(CLI::App& bench, int& exit_code) {
  struct State {
    Output output;
    Where where;
    RuleFiles rules;
    bench::TrainAxes axes;
    bench::TrainTiming timing;
    std::string columns = "time", profile, trace;
  };
  auto s = std::make_shared<State>();
  CLI::App* train = bench.add_subcommand(
      "train",
      "Time training steps of GPT models: forward, backward, optimizer, memory.\n"
      "Every option that takes a list is an axis; all combinations are run.");
  const auto list = [&](const std::string& flag, auto& values, const std::string& about) {
    return train->add_option(flag, values, about)
        ->delimiter(',')
        ->capture_default_str()
        ->group("Axes (lists, separated by commas)");
  };
  list("--model", s->axes.models,
       "nano, char, gpt2, gpt2-medium, gpt2-large, gpt2-xl, S, M, L, XL, 2p7, 10B, "
       "adan:HEADSxLAYERSxWIDTH; with changes: gpt2:layers=6:context=512")
      ->type_name("MODEL");
  list("--context", s->axes.contexts, "Tokens in a sequence; default: each model's own")
      ->check(at_least_one())
      ->default_str("")
      ->type_name("N");
  list("--batch", s->axes.batches, "Sequences in a batch")->check(at_least_one())->type_name("N");
  list("--precision", s->axes.precisions, "Of products: fp32, tf32, bf16, fp16, fp64")
      ->type_name("NAME");
  list("--mode", s->axes.modes,
       "eager: kernel by kernel; compiled: fused, and on a GPU one recorded graph")
      ->type_name("NAME");
  const CLI::Option* optimizer =
      list("--optimizer", s->axes.optimizers, "See gallop list; none: forward and backward alone")
          ->type_name("NAME");
  train
      ->add_option("--state", s->axes.states,
                   "Optimizer state: fp32, bf16, 8bit, 8bit-bnb, 4bit, fp8, hybrid; or one policy "
                   "(see gallop list --policy)")
      ->capture_default_str()
      ->type_name("FORMAT")
      ->group("Axes (lists, separated by commas)");
  list("--rounding", s->axes.roundings,
       "Of 16-bit matrices: nearest, stochastic, master, remainder")
      ->type_name("NAME");
  list("--attention", s->axes.attentions, "fused, or naive: all scores in memory")
      ->type_name("NAME");
  list("--recompute", s->axes.recomputations,
       "yes: blocks are computed again in backward, which takes less memory")
      ->type_name("yes|no");
  list(
      "--overlap", s->axes.overlaps,
      "yes: parameters are updated while backward goes on, and gradients take turns in memory; the "
      "same bits")
      ->type_name("yes|no");
  list("--accumulation", s->axes.accumulations, "Batches in a step")
      ->check(at_least_one())
      ->type_name("N");
  list("--warmup", s->axes.warmups, "Steps before those that are measured; 0: the first is too")
      ->check(CLI::Range(0, 1000000))
      ->type_name("N");
  s->rules.add_to(*train);
  const CLI::Option* steps = train->add_option("--steps", s->timing.steps, "Measured steps")
                                 ->check(CLI::Range(1, 1000000))
                                 ->capture_default_str();
  train
      ->add_option("--time-limit", s->timing.time_limit_s,
                   "Seconds for each row's measured steps, instead of --steps or if sooner")
      ->check(CLI::Range(0.001, 1e6));
  train
      ->add_option("--profile-memory", s->profile,
                   "Of one configuration: write when which buffer is in use, for Perfetto")
      ->type_name("FILE.json");
  train
      ->add_option("--trace", s->trace,
                   "Of one configuration: write what host and GPU were at when, by layer and "
                   "phase, for Perfetto")
      ->type_name("FILE.json");
  s->where.add_to(*train);
  train->add_option("--columns", s->columns, "Of tables: time, memory, all")
      ->check(CLI::IsMember({"time", "memory", "all"}))
      ->capture_default_str()
      ->group("Output");
  s->output.add_to(*train);
  s->output.keep_as(*train, "bench train");
  train->callback([s, optimizer, steps, &exit_code] {
    s->axes.optimizers = s->rules.beside(*optimizer, s->axes.optimizers);
    s->axes.states = state_list(s->axes.states);
    s->axes.device = s->where.parsed();
    s->axes.threads = s->where.threads;
    s->axes.seed = s->where.seed;
    if (s->timing.time_limit_s > 0 && steps->count() == 0) s->timing.steps = 1000000;
    exit_code = s->output.measure([&] {
      return std::vector{bench::train_bench(
          s->axes, s->timing, bench::parse_train_columns(s->columns), s->profile, s->trace)};
    });
  });
}

}  // namespace gallop::cli
