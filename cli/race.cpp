// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "bench/nvml.h"
#include "cli/common.h"
#include "cli/signals.h"
#include "gallop/error.h"
#include "io/atomic_file.h"
#include "lab/race_run.h"
#include "lab/race_table.h"
#include "lab/store.h"

namespace gallop::cli {
namespace {

constexpr int kInterrupted = 130;
constexpr const char* kGoal = "What is raced for (one of them; default: --steps)";

[[noreturn]] void invalid(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

struct RaceFlags {
  Output output;
  Where where;
  RuleFiles rules;
  lab::RaceOptions race;
  std::vector<std::string> optimizers = {"adamw", "lion", "adan", "muon", "adafactor", "sgd"};
  std::vector<std::string> models = {"nano"}, data = {"synthetic"}, tune;
  std::string budget, folder = "race-trials";
  std::optional<double> target;
  int64_t trials = 0;
  int jobs = 0;
};

// "90", "90s", "10m", "1.5h"
double parse_seconds(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  const std::string_view unit(at, static_cast<size_t>(end - at));
  const double by = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc() || by == 0 || !(value > 0)) {
    invalid(fmt::format("--budget '{}', expected a time such as 90s, 10m or 1h", text));
  }
  return value * by;
}

// Ranges that have no points of their own get as many as there are trials.
std::vector<lab::Settings> candidates(const RaceFlags& f, const std::string& optimizer) {
  constexpr int64_t kTrials = 5;
  const int64_t wanted = f.trials > 0 ? f.trials : kTrials;
  std::vector<lab::SearchRange> ranges;
  bool pointed = true;
  for (const std::string& text : f.tune) {
    ranges.push_back(lab::parse_range(text));
    pointed = pointed && !ranges.back().points.empty();
  }
  if (ranges.empty()) {
    if (wanted == 1) return {{}};  // as its authors set it
    const lab::SearchRange usual = lab::usual_range(optimizer);
    return lab::grid(std::vector{lab::parse_range(
        fmt::format("{}={}:{}:log,{}", usual.name, usual.low, usual.high, wanted))});
  }
  if (pointed && f.trials == 0) return lab::grid(ranges);
  return lab::spread_trials(ranges, static_cast<size_t>(wanted), f.where.seed);
}

// NAME or NAME:STATE.
lab::Racer racer(const RaceFlags& f, const std::string& text) {
  const size_t colon = text.find(':');
  lab::Racer r;
  r.optimizer = text.substr(0, colon);
  if (colon != std::string::npos) r.state = text.substr(colon + 1);
  r.name = r.state == "fp32" ? r.optimizer : fmt::format("{} {}", r.optimizer, r.state);
  parse_state_policy(r.state);
  r.candidates = candidates(f, r.optimizer);
  // Adafactor takes steps of its own size unless it is told not to.
  if (rule_info(r.optimizer).knob("relative_step") >= 0) {
    for (lab::Settings& settings : r.candidates) {
      const auto is_set = [&](const char* name) {
        return std::any_of(settings.begin(), settings.end(),
                           [&](const lab::Setting& s) { return s.name == name; });
      };
      if (is_set("lr") && !is_set("relative_step")) settings.push_back({"relative_step", 0});
    }
  }
  return r;
}

void add_workloads(RaceFlags& f) {
  for (const std::string& model : f.models) {
    for (const std::string& data : f.data) {
      std::string name = f.models.size() > 1 || f.data.size() == 1 ? model : "";
      if (f.data.size() > 1) name += (name.empty() ? "" : " on ") + data;
      f.race.workloads.push_back({name, model, data});
    }
  }
}

// Trials of another build or machine would not be comparable.
void require_same_origin(const std::string& folder, const lab::Origin& here) {
  const std::string path = (std::filesystem::path(folder) / "origin.txt").string();
  const std::string mine =
      fmt::format("{} {}\n{}\n{}\n", here.version, here.commit, here.cpu, here.gpu);
  std::ifstream in(path);
  if (!in) return io::write_file_atomically(path, mine);
  const std::string theirs((std::istreambuf_iterator<char>(in)), {});
  if (theirs == mine) return;
  invalid(fmt::format("{} has trials of another build or machine, expected a --folder of its own",
                      folder));
}

lab::TrialPoolOptions pool_of(const RaceFlags& f) {
  lab::TrialPoolOptions o;
  const size_t gpus = bench::find_gpus().size();
  const bool on_gpu = f.race.base.device.starts_with("cuda");
  if (on_gpu && f.race.base.device == "cuda") {
    for (size_t i = 0; i < gpus; ++i) o.devices.push_back(fmt::format("cuda:{}", i));
  }
  o.jobs = f.jobs > 0 ? f.jobs : on_gpu ? std::max(1, static_cast<int>(o.devices.size())) : 1;
  o.divide_cpus = !on_gpu || o.jobs > 1;
  return o;
}

int run(RaceFlags& f, const CLI::Option& optimizer) {
  lab::RaceOptions& race = f.race;
  f.where.parsed();
  race.base.device = f.where.device;
  race.base.threads = f.where.threads;
  race.first_seed = f.where.seed;
  if (f.target) race.goal = lab::Goal::target, race.target = *f.target;
  if (!f.budget.empty()) race.goal = lab::Goal::budget, race.budget_s = parse_seconds(f.budget);
  if (f.target && !f.budget.empty()) invalid("--to-loss with --budget, expected one goal");
  for (const std::string& text : f.rules.beside(optimizer, f.optimizers)) {
    race.racers.push_back(racer(f, text));
  }
  add_workloads(f);
  if (race.base.eval_every == 0) race.base.eval_every = std::max<int64_t>(1, race.base.steps / 20);
  const lab::RaceFolder folder(f.folder);
  require_same_origin(f.folder, lab::describe_origin(invocation().command, {}));
  const Signals signals;
  lab::RaceRunOptions how;
  how.pool = pool_of(f);
  how.stop = [] { return Signals::asked(); };
  const lab::RaceResult result = lab::run_race(race, lab::run_here(race, folder, how));
  if (!result.whole) {
    fmt::print(stderr, "gallop: stopped; the same command goes on with what is in {}\n", f.folder);
    return kInterrupted;
  }
  std::vector<lab::Table> tables = {lab::leaderboard(race, result)};
  if (lab::Table over_all = lab::profiles(race, result); !over_all.rows.empty()) {
    tables.push_back(std::move(over_all));
  }
  f.output.keep(lab::trial_rows(race, result), "race trial");
  f.output.emit_all(tables);
  return 0;
}

}  // namespace

void add_race(CLI::App& app, int& exit_code) {
  auto f = std::make_shared<RaceFlags>();
  lab::TrialSpec& base = f->race.base;
  base.steps = 300;
  base.schedule = "cosine:warmup=20";
  base.clip_norm = 1;
  base.eval_every = 0;
  CLI::App* race = app.add_subcommand(
      "race",
      "Train with several optimizers, each tuned at the same cost, and say which is best.\n"
      "Finished trials are kept: the same command goes on where it was stopped.");
  const auto list = [&](const char* flag, auto& values, const char* about, const char* type) {
    return race->add_option(flag, values, about)->type_name(type)->capture_default_str();
  };
  CLI::Validator positive = CLI::Range(int64_t{1}, int64_t{1} << 40).description("");
  const CLI::Option* optimizer =
      list("--optimizer", f->optimizers,
           "Who races: NAME or NAME:STATE, such as lion:8bit; the others are compared with the "
           "first",
           "NAME")
          ->delimiter(',');
  list("--model", f->models, "nano, char, S ...; several: several workloads", "MODEL")
      ->delimiter(',');
  list("--data", f->data, "As of gallop train; may be given several times", "SOURCE")->take_all();
  race->add_option("--to-loss", f->target, "The time to this validation loss")->group(kGoal);
  race->add_option("--budget", f->budget, "The loss after training so long: 90s, 10m")
      ->group(kGoal);
  race->add_option("--steps", base.steps, "The loss after so many steps; with --to-loss at most")
      ->check(positive)
      ->capture_default_str()
      ->group(kGoal);
  const char* tuning = "Tuning";
  list("--tune", f->tune,
       "What is tuned: lr=1e-4:1e-2:log,5 or wd=0,0.1; several: all combinations, or --trials of "
       "them; default: lr, around what is usual for each optimizer",
       "RANGE")
      ->take_all()
      ->group(tuning);
  race->add_option("--trials", f->trials,
                   "Of each optimizer; default: all of --tune, or 5; 1: as its authors set it")
      ->check(positive)
      ->group(tuning);
  race->add_option("--tune-seeds", f->race.tune_seeds, "Runs of each trial; its median counts")
      ->check(positive)
      ->capture_default_str()
      ->group(tuning);
  race->add_option("--seeds", f->race.seeds, "Runs of the best trial, with seeds of their own")
      ->check(positive)
      ->capture_default_str();
  race->add_option("--batch", base.batch, "Sequences in a batch")
      ->check(positive)
      ->capture_default_str();
  race->add_option("--context", base.context, "Tokens in a sequence; default: the model's")
      ->check(positive);
  race->add_option("--precision", base.precision, "fp32, tf32, bf16, fp16")->capture_default_str();
  race->add_option("--schedule", base.schedule, "Of the learning rate, over all steps")
      ->capture_default_str();
  race->add_option("--clip-norm", base.clip_norm, "Of all gradients; 0: none")
      ->capture_default_str();
  race->add_option("--eval-every", base.eval_every, "Steps; default: a twentieth of all")
      ->check(positive);
  race->add_option("--eval-batches", base.eval_batches, "Of the validation data")
      ->check(positive)
      ->capture_default_str();
  race->add_option("--jobs", f->jobs,
                   "Trials at a time, CPUs divided among them; default: 1, or one for each GPU")
      ->check(CLI::Range(1, 4096));
  race->add_option("--folder", f->folder, "Where finished trials are kept")
      ->capture_default_str()
      ->type_name("DIR");
  f->rules.add_to(*race);
  f->where.add_to(*race);
  f->output.add_to(*race);
  f->output.keep_as(*race, "race");
  race->callback([f, race, optimizer, &exit_code] {
    f->where.prefer_gpu(*race);
    exit_code = run(*f, *optimizer);
  });
}

}  // namespace gallop::cli
