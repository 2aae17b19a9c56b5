// SPDX-License-Identifier: MIT
#include "cli/train_options.h"

#include <fmt/format.h>

#include <filesystem>

#include "gallop/error.h"
#include "gpt/hugging_face.h"

namespace gallop::cli {
namespace {

[[noreturn]] void invalid(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

bool has_key(const std::string& schedule, const std::string& key) {
  return schedule.find(":" + key + "=") != std::string::npos ||
         schedule.find("," + key + "=") != std::string::npos;
}

// Before hours are spent.
void require_folder(const char* flag, const std::string& path) {
  if (path.empty()) return;
  const auto folder = std::filesystem::absolute(path).parent_path();
  if (std::filesystem::is_directory(folder)) return;
  throw Error(ErrorCode::io, fmt::format("{} {}: there is no folder {}, expected one to write to",
                                         flag, path, folder.string()));
}

// Whole numbers; --help says nothing of the range.
CLI::Validator at_least(int64_t least) {
  return CLI::Range(least, int64_t{1} << 40).description("");
}

}  // namespace

TrainOptions::TrainOptions() {
  trainer.batch = 8;
  trainer.clip_norm = 1;
  sample.tokens = 0;
  sample.temperature = 0.8;
}

// --schedule with what it leaves to --steps and --warmup.
Schedule TrainOptions::whole_schedule() const {
  std::string text = schedule;
  const auto add = [&](const char* key, int64_t value) {
    text += fmt::format("{}{}={}", text.find(':') == std::string::npos ? ':' : ',', key, value);
  };
  if (warmup && has_key(text, "warmup")) {
    invalid(fmt::format("--warmup {} and --schedule {}, expected one warm-up", *warmup, text));
  }
  if (warmup) add("warmup", *warmup);
  return gpt::schedule_over(text, run.steps);
}

gpt::TrainerOptions TrainOptions::for_trainer() const {
  gpt::TrainerOptions o = trainer;
  o.config = gpt::parse_model(model);
  o.device = where.parsed();
  o.threads = where.threads;
  o.seed = where.seed;
  o.optimizer = optimizer;
  if (o.optimizer == "none") invalid("optimizer none does not train, expected one of gallop list");
  hyper.check({o.optimizer});
  o.hyper = hyper.of(o.optimizer);
  o.state = parse_state_policy(state);
  o.schedule = whole_schedule();
  o.compute = gpt::parse_compute(precision);
  o.rounding = parse_rounding(rounding);
  o.compiled = mode == "compiled";
  o.attention = attention == "fused" ? gpt::Attention::fused : gpt::Attention::naive;
  return o;
}

void TrainOptions::check(const gpt::Config& config) const {
  require_folder("--checkpoint", run.checkpoint);
  require_folder("--log", log);
  require_folder("--export", export_file);
  require_folder("--dump", dump_file);
  if (run.resume && run.checkpoint.empty()) {
    invalid("--resume without --checkpoint, expected the file to go on from");
  }
  if (trainer.overlap && !dump_file.empty()) {
    invalid("--dump with --overlap, expected one of them: gradients are gone when they are used");
  }
  if (run.other_libraries && !run.resume) {
    invalid("--other-libraries without --resume, expected both or none");
  }
  if (run.resume && !import_file.empty()) {
    invalid("--import with --resume, expected one of them: a checkpoint has weights");
  }
  const bool exchanges = !export_file.empty() || !import_file.empty() || !dump_file.empty();
  if (exchanges) gpt::require_gpt2(config);
}

CLI::Option* TrainOptions::add_to(CLI::App& app) {
  app.add_option("--model", model, "nano, char, gpt2, ...; with changes: nano:layers=2:context=64")
      ->capture_default_str();
  app.add_option("--data", data,
                 "A file of text, *.bin of tokens (nanoGPT's or llm.c's), TRAIN,VALIDATION, or "
                 "synthetic[:KEY=VALUE,...]")
      ->required();
  app.add_option("--steps", run.steps, "Updates, in all")
      ->check(at_least(0))
      ->capture_default_str();
  app.add_option("--batch", trainer.batch, "Sequences in a batch")
      ->check(at_least(1))
      ->capture_default_str();
  app.add_option("--context", trainer.time, "Tokens in a sequence; default: the model's context")
      ->check(at_least(1));
  app.add_option("--min-length", run.min_length,
                 "Sequences of so many tokens up to the context, the rest padding that the loss "
                 "leaves out; default: all of the context")
      ->type_name("N")
      ->check(at_least(0));
  app.add_option("--accumulation", trainer.accumulation, "Batches in a step")
      ->check(at_least(1))
      ->capture_default_str();
  app.add_option("--data-seed", run.data_seed, "Seed of what is read when")->capture_default_str();
  app.add_option("--validation", validation_share,
                 "Share of one file, its end, that is kept to evaluate with")
      ->capture_default_str();
  app.add_option("--eval-every", eval_every,
                 "Steps between evaluations; 0: none; default: a tenth of --steps")
      ->check(at_least(0));
  app.add_option("--eval-batches", run.eval_batches, "Batches in an evaluation, at most")
      ->check(at_least(1))
      ->capture_default_str();
  app.add_flag("--keep-going", run.keep_going, "Do not stop at a loss that is not finite");
  CLI::Option* chosen =
      app.add_option("--optimizer", optimizer, "Which (see gallop list)")->capture_default_str();
  rules.add_to(app);
  add_optimization(app);
  add_computation(app);
  where.add_to(app);
  add_files(app);
  add_sampling(app);
  hyper.add_to(app);
  output.add_to(app);
  output.keep_as(app, "train");
  app.footer(
      "For example:\n"
      "  gallop train --data book.txt --steps 1000 --lr 1e-3 --schedule cosine --warmup 50 "
      "--sample 300\n"
      "  gallop train --model nano --data synthetic --steps 200\n"
      "Ctrl-C ends after the step at hand, with exit code 130; a loss that is not finite ends "
      "with 3.");
  return chosen;
}

void TrainOptions::add_optimization(CLI::App& app) {
  app.add_option("--state", state,
                 "Optimizer state: fp32, bf16, 8bit, 8bit-bnb, 4bit, fp8, hybrid, or a policy (see "
                 "gallop list --policy)")
      ->capture_default_str();
  app.add_option("--schedule", schedule,
                 "constant, linear, cosine, wsd, step, exponential or one-cycle, with "
                 "KEY=VALUE,... behind a colon: cosine:final=0.1; total is --steps unless given")
      ->capture_default_str();
  app.add_option("--warmup", warmup, "Steps in which lr rises")->check(at_least(0));
  app.add_option("--clip-norm", trainer.clip_norm, "Scale gradients down to this norm; 0: off")
      ->check(CLI::Range(0.0, 1e30).description(""))
      ->capture_default_str();
}

void TrainOptions::add_computation(CLI::App& app) {
  app.add_option(
         "--precision", precision,
         "fp32, tf32, bf16, fp16 or fp64; on a CPU fp32, fp64, and bf16 if it multiplies that")
      ->capture_default_str();
  app.add_option("--rounding", rounding,
                 "Of 16-bit matrices: master, remainder, stochastic or nearest")
      ->capture_default_str();
  app.add_option("--loss-scale", trainer.loss_scale,
                 "What the loss is multiplied by at first; it grows and falls with what gradients "
                 "bear; 0: nothing; default: 65536 with fp16, else nothing");
  app.add_flag("--overlap", trainer.overlap,
               "Update parameters while backward goes on, in less memory for gradients (not with "
               "--clip-norm or a loss scale)");
  app.add_option("--mode", mode, "compiled: fused and, on a GPU, recorded; or eager")
      ->check(CLI::IsMember({"eager", "compiled"}))
      ->capture_default_str();
  app.add_option("--attention", attention, "fused, or naive: with the whole matrix of scores")
      ->check(CLI::IsMember({"naive", "fused"}))
      ->capture_default_str();
  app.add_flag("--recompute", trainer.checkpoints,
               "Keep only what enters a block and compute the rest again: less memory");
}

void TrainOptions::add_files(CLI::App& app) {
  app.add_option("--checkpoint", run.checkpoint,
                 "Save the run here, and its optimizer's state in FILE.optimizer.STEP")
      ->type_name("FILE")
      ->group("Files");
  app.add_option("--save-every", run.save_every,
                 "Steps between checkpoints; default: at every evaluation; always at the end")
      ->check(at_least(1))
      ->group("Files");
  app.add_flag("--resume", run.resume,
               "Go on from --checkpoint, with the same bits as if it had never stopped")
      ->group("Files");
  app.add_flag("--other-libraries", run.other_libraries,
               "With --resume: go on although a GPU's libraries have changed, with other bits")
      ->group("Files");
  app.add_option("--log", log, "A JSON object on a line for each step")
      ->type_name("FILE")
      ->group("Files");
  app.add_option("--log-every", log_every, "Steps from line to line")
      ->check(at_least(1))
      ->capture_default_str()
      ->group("Files");
  app.add_option("--trace", trace,
                 "Write what host and GPU were at when in the first 10 steps, by layer and phase, "
                 "for Perfetto")
      ->type_name("FILE.json")
      ->group("Files");
  app.add_option("--import", import_file, "Begin with weights of a GPT-2 from Hugging Face")
      ->type_name("FILE.safetensors")
      ->group("Files");
  app.add_option("--export", export_file,
                 "Write the weights as Hugging Face's GPT-2, with config.json beside them")
      ->type_name("FILE.safetensors")
      ->group("Files");
  app.add_option("--dump", dump_file,
                 "Write logits, loss and gradients of the first batch at the end, for "
                 "benchmarks/baselines/check_gpt2.py")
      ->type_name("FILE")
      ->group("Files");
}

void TrainOptions::add_sampling(CLI::App& app) {
  app.add_option("--sample", sample.tokens, "Tokens to write at the end")
      ->check(at_least(0))
      ->capture_default_str()
      ->group("Sample");
  app.add_option("--prompt", prompt,
                 "What they follow: text; numbers of tokens where the data are tokens")
      ->group("Sample");
  app.add_option("--temperature", sample.temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0, 1e30).description(""))
      ->capture_default_str()
      ->group("Sample");
  app.add_option("--top-k", sample.top_k, "Only among so many; 0: all")
      ->check(at_least(0))
      ->capture_default_str()
      ->group("Sample");
}

}  // namespace gallop::cli
