// SPDX-License-Identifier: MIT
#include <string>

#include "cli/common.h"
#include "lab/adamw_8bit.h"
#include "lab/cs336.h"

namespace gallop::cli {
namespace {

CLI::Validator from(int64_t least) {
  CLI::Validator v = CLI::Range(least, int64_t{1} << 40);
  v.description("");
  return v;
}

}  // namespace

void add_cs336(CLI::App& suite, int& exit_code) {
  struct State {
    Output output;
    Where where;
    lab::Cs336Options options;
  };
  auto s = std::make_shared<State>();
  CLI::App* app = suite.add_subcommand(
      "cs336",
      "Training steps of CS336's models: time, what warm-up changes, memory; on the GPU if there "
      "is one");
  const auto list = [&](const char* flag, auto& values, const char* about) {
    return app->add_option(flag, values, about)->delimiter(',')->capture_default_str();
  };
  bench::TrainAxes& axes = s->options.axes;
  list("--model", axes.models, "Which models; any of bench train's")->type_name("MODEL");
  list("--context", axes.contexts, "Tokens in a sequence; those beyond a model's are left out")
      ->check(from(1))
      ->type_name("N");
  list("--batch", axes.batches, "Sequences in a batch")->check(from(1))->type_name("N");
  list("--precision", axes.precisions, "fp32, tf32, bf16, fp16")->type_name("NAME");
  list("--mode", axes.modes, "eager, compiled")->type_name("NAME");
  list("--optimizer", axes.optimizers, "none, or one of gallop list")->type_name("NAME");
  list("--warmups", s->options.warmups, "Warm-up steps that the second table compares")
      ->check(from(0))
      ->type_name("N");
  list("--memory-context", s->options.memory_contexts, "Contexts that the third table shows")
      ->check(from(1))
      ->type_name("N");
  app->add_option("--steps", s->options.timing.steps, "Measured steps, after 5 of warm-up")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app->add_option("--time-limit", s->options.timing.time_limit_s,
                  "Seconds for each row's measured steps, if sooner")
      ->check(CLI::Range(0.001, 1e6));
  s->where.add_to(*app);
  s->output.add_to(*app);
  s->output.keep_as(*app, "suite cs336");
  app->callback([s, app, &exit_code] {
    s->where.prefer_gpu(*app);
    s->options.axes.device = s->where.parsed();
    s->options.axes.threads = s->where.threads;
    s->options.axes.seed = s->where.seed;
    exit_code = s->output.measure([&] { return lab::cs336(s->options); });
  });
}

void add_adamw_8bit(CLI::App& suite, int& exit_code) {
  struct State {
    Output output;
    Where where;
    lab::Adamw8bitOptions options;
  };
  auto s = std::make_shared<State>();
  CLI::App* app = suite.add_subcommand(
      "adamw-8bit",
      "AdamW with fp32, 8-bit and hybrid state: tokens a second, memory, loss of a longer run; on "
      "the GPU if there is one");
  const auto list = [&](const char* flag, auto& values, const char* about) {
    return app->add_option(flag, values, about)->delimiter(',')->capture_default_str();
  };
  lab::Adamw8bitOptions& o = s->options;
  list("--model", o.models, "Which models; any of bench train's")->type_name("MODEL");
  list("--batch", o.batches, "Sequences in a batch")->check(from(1))->type_name("N");
  list("--state", o.states, "Formats of state; the others are compared with the first")
      ->type_name("FORMAT");
  app->add_option("--context", o.context, "Tokens in a sequence; default: the model's own")
      ->check(from(1))
      ->type_name("N");
  app->add_option("--optimizer", o.optimizer, "Another one than AdamW")->capture_default_str();
  app->add_option("--precision", o.precision, "fp32, tf32, bf16, fp16")->capture_default_str();
  app->add_option("--mode", o.mode, "eager, compiled")->capture_default_str();
  app->add_option("--steps", o.steps, "Measured steps")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app->add_option("--warmup", o.warmup, "Steps before them")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app->add_option("--time-limit", o.time_limit_s,
                  "Seconds for each batch size and state, if sooner")
      ->check(CLI::Range(0.001, 1e6));
  app->add_option("--train-steps", o.train_steps,
                  "Steps of the longer run, for its loss; 0: none; default: 100, on a GPU 2000")
      ->check(from(0))
      ->type_name("N");
  app->add_option("--train-batch", o.train_batch, "Its batch")
      ->check(from(1))
      ->capture_default_str();
  app->add_option("--runs", o.runs, "Longer runs, each with a seed of its own")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_option("--lr", o.lr, "Its learning rate")->capture_default_str();
  app->add_option("--data", o.data, "What it is trained on: a text, tokens (*.bin), or synthetic")
      ->capture_default_str();
  s->where.add_to(*app);
  s->output.add_to(*app);
  s->output.keep_as(*app, "suite adamw-8bit");
  app->callback([s, app, &exit_code] {
    s->where.prefer_gpu(*app);
    s->options.device = s->where.parsed();
    s->options.threads = s->where.threads;
    s->options.seed = s->where.seed;
    if (s->options.device.kind == Device::Kind::cuda && app->count("--train-steps") == 0) {
      s->options.train_steps = 2000;
    }
    exit_code = s->output.measure([&] { return lab::adamw_8bit(s->options); });
  });
}

}  // namespace gallop::cli
