// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "bench/nvml.h"
#include "cli/common.h"
#include "cli/race_presets.h"
#include "cli/race_slurm.h"
#include "cli/trials.h"
#include "gallop/error.h"
#include "io/atomic_file.h"
#include "jit/cache.h"
#include "lab/crew.h"
#include "lab/host.h"
#include "lab/race_run.h"
#include "lab/race_table.h"
#include "lab/signals.h"
#include "lab/store.h"

namespace gallop::cli {
namespace {

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
  std::string preset, budget, folder = "race-trials", trial_timeout, rank_timeout = "30s";
  std::optional<double> target;
  int64_t trials = 0;
  int jobs = 0, slurm_tasks = 4;
  bool shared = false, print_slurm = false, show_tuning = false;
};

// "90", "90s", "10m", "1.5h"
double parse_seconds(const char* flag, const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  const std::string_view unit(at, static_cast<size_t>(end - at));
  const double by = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc() || by == 0 || !(value > 0)) {
    invalid(fmt::format("{} '{}', expected a time such as 90s, 10m or 1h", flag, text));
  }
  return value * by;
}

// Ranges that have no points of their own get as many as there are trials.
std::vector<lab::Settings> candidates(const RaceFlags& f, const std::string& optimizer) {
  constexpr int64_t kTrials = 5;
  const RacePreset* preset = find_preset(f.preset);
  const int64_t wanted = f.trials > 0 ? f.trials : preset != nullptr ? preset->trials : kTrials;
  std::vector<std::string> tune = f.tune;
  if (preset != nullptr && tune.empty() && preset->tune.contains(optimizer)) {
    tune = {preset->tune.at(optimizer)};
  }
  std::vector<lab::SearchRange> ranges;
  bool pointed = true;
  for (const std::string& text : tune) {
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

lab::Racer racer(const RaceFlags& f, const std::string& text) {
  lab::Racer r{lab::parse_contender(text), {}};
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

// What figures depend on. Of several GPUs of one kind a machine may have any number.
std::string kind_of(const lab::Origin& o) {
  std::set<std::string> gpus;
  for (const bench::Gpu& gpu : bench::find_gpus()) gpus.insert(gpu.name);
  return fmt::format("{} {}\n{}\n{}\n", o.version, o.commit, o.cpu, fmt::join(gpus, ", "));
}

// Trials of another build or kind of machine would not be comparable.
void require_same_kind(const std::string& folder, const std::string& mine) {
  const std::string path = (std::filesystem::path(folder) / "origin.txt").string();
  if (!std::filesystem::exists(path)) io::write_file_atomically(path, mine);
  std::ifstream in(path);
  const std::string theirs((std::istreambuf_iterator<char>(in)), {});
  if (theirs == mine) return;
  invalid(fmt::format("{} has trials of another build or machine, expected a --folder of its own",
                      folder));
}

lab::TrialPoolOptions pool_of(const RaceFlags& f, const lab::Place& place) {
  lab::TrialPoolOptions o = trial_pool(f.where, f.jobs, place);
  if (!f.trial_timeout.empty()) o.timeout_s = parse_seconds("--trial-timeout", f.trial_timeout);
  return o;
}

void plan(RaceFlags& f, const CLI::Option& optimizer) {
  lab::RaceOptions& race = f.race;
  race.base.threads = f.where.threads;
  race.first_seed = f.where.seed;
  race.folder = f.folder;
  if (f.target) race.goal = lab::Goal::target, race.target = *f.target;
  if (!f.budget.empty()) {
    race.goal = lab::Goal::budget, race.budget_s = parse_seconds("--budget", f.budget);
  }
  if (f.target && !f.budget.empty()) invalid("--to-loss with --budget, expected one goal");
  for (const std::string& text : f.rules.beside(optimizer, f.optimizers)) {
    race.racers.push_back(racer(f, text));
  }
  add_workloads(f);
  if (race.base.eval_every == 0) race.base.eval_every = std::max<int64_t>(1, race.base.steps / 20);
}

// Of those who share a folder, one shows what came of it.
bool is_mine_to_show(const RaceFlags& f, const lab::RaceResult& result) {
  std::string trials;
  for (const lab::Standing& s : result.standings) {
    for (const lab::Finished& t : s.tuned) trials += lab::trial_hash(t.entry.spec);
    for (const lab::Finished& t : s.finals) trials += lab::trial_hash(t.entry.spec);
  }
  const std::string mark = fmt::format("{}/{}.shown", f.folder, jit::digest(trials));
  if (io::create_file(mark, fmt::format("{} {}\n", lab::host_name(), getpid()))) return true;
  fmt::print(stderr,
             "gallop: the race is finished, and another process shows it; the same command without "
             "--shared shows it again\n");
  return false;
}

void show(const RaceFlags& f, const lab::RaceResult& result) {
  std::vector<lab::Table> tables = {lab::leaderboard(f.race, result)};
  if (lab::Table tried = lab::tuning(f.race, result); f.show_tuning && !tried.rows.empty()) {
    tables.push_back(std::move(tried));
  }
  if (lab::Table over_all = lab::profiles(f.race, result); !over_all.rows.empty()) {
    tables.push_back(std::move(over_all));
  }
  lab::Table trials;
  trials.rows = lab::trial_rows(f.race, result);
  f.output.keep({trials}, "race trial");
  f.output.emit_all(tables);
}

// By this process alone, or leading others.
int lead(RaceFlags& f, const CLI::Option& optimizer, const std::string& kind, lab::Crew* crew) {
  f.where.parsed();
  plan(f, optimizer);
  const lab::RaceFolder folder(f.folder);
  require_same_kind(f.folder, kind);
  std::optional<lab::RaceClaims> claims;
  if (f.shared) claims.emplace(f.folder);
  lab::RaceRunOptions how;
  how.pool = pool_of(f, crew == nullptr ? lab::Place() : crew->place());
  how.others = crew;
  how.claims = claims ? &*claims : nullptr;
  how.stop = [] { return lab::Signals::asked(); };
  const lab::RaceResult result = lab::run_race(f.race, lab::run_here(f.race, folder, how));
  if (crew != nullptr && crew->lost() > 0) {
    fmt::print(stderr, "gallop: ranks that were lost: {}; what they ran was run again\n",
               crew->lost());
  }
  if (!result.whole) {
    fmt::print(stderr, "gallop: stopped; the same command goes on with what is in {}\n", f.folder);
    return kInterrupted;
  }
  if (!f.shared || is_mine_to_show(f, result)) show(f, result);
  return 0;
}

int run(RaceFlags& f, const CLI::Option& optimizer) {
  f.race.base.device = f.where.device;
  if (f.print_slurm) {
    parse_device(f.where.device);
    plan(f, optimizer);  // what is wrong with it shows now
    pool_of(f, {});
    fmt::print("{}", slurm_script({f.slurm_tasks, f.where.threads * std::max(1, f.jobs),
                                   f.where.device, f.folder}));
    return 0;
  }
  const lab::Signals signals;
  const std::unique_ptr<lab::Ranks> ranks = lab::join_ranks();
  const std::string kind = kind_of(lab::describe_origin(invocation().command, {}));
  if (!ranks) return lead(f, optimizer, kind, nullptr);
  const lab::CrewOptions how{kind, parse_seconds("--rank-timeout", f.rank_timeout)};
  if (ranks->rank() == 0) {
    lab::Crew crew(*ranks, how);
    return lead(f, optimizer, kind, &crew);
  }
  const int exit_code = lab::work_for_crew(
      *ranks, how, [&](const lab::Place& place) { return pool_of(f, place); },
      [] { return lab::Signals::asked(); });
  if (exit_code != 0 && !lab::Signals::asked()) {
    fmt::print(stderr, "gallop: rank {} leaves, as rank 0 is silent; the same command goes on\n",
               ranks->rank());
  }
  return exit_code;
}

// What the flags do not say, a preset does.
void take_preset(const CLI::App& race, RaceFlags& f) {
  const RacePreset* preset = find_preset(f.preset);
  if (preset == nullptr) return;
  if (race.count("--optimizer") == 0) f.optimizers = preset->optimizers;
  if (race.count("--steps") == 0) f.race.base.steps = preset->steps;
  f.show_tuning = true;
}

void add_many_machines(CLI::App& race, RaceFlags& f) {
  const char* machines =
      "Several machines (or mpirun --enable-recovery -n 4 gallop race ..., which goes on when a "
      "rank is lost)";
  race.add_option("--rank-timeout", f.rank_timeout,
                  "A rank of mpirun's that is silent for so long is lost")
      ->type_name("TIME")
      ->capture_default_str()
      ->group(machines);
  race.add_flag("--shared", f.shared,
                "Share --folder with others that run the same command: each takes trials that "
                "nobody has, and one shows who won")
      ->group(machines);
  race.add_flag("--print-slurm", f.print_slurm,
                "Print a script for sbatch: an array of tasks that share --folder")
      ->group(machines);
  race.add_option("--slurm-tasks", f.slurm_tasks, "In that array")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str()
      ->group(machines);
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
  std::vector<std::string> presets;
  for (const RacePreset& p : race_presets()) presets.push_back(p.name);
  race->add_option("--preset", f->preset, describe_presets())
      ->check(CLI::Validator(CLI::IsMember(presets)).description(""))
      ->type_name("NAME");
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
  race->add_flag("--show-tuning", f->show_tuning, "Also what came of each trial of tuning")
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
  race->add_option("--min-length", base.min_length,
                   "Sequences have so many tokens to --context, and the rest is padding")
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
  race->add_option("--trial-timeout", f->trial_timeout,
                   "Ends a trial that takes longer, by the clock: 90s, 10m")
      ->type_name("TIME");
  race->add_option("--folder", f->folder, "Where finished trials are kept")
      ->capture_default_str()
      ->type_name("DIR");
  add_many_machines(*race, *f);
  f->rules.add_to(*race);
  f->where.add_to(*race);
  f->output.add_to(*race);
  f->output.keep_as(*race, "race");
  race->callback([f, race, optimizer, &exit_code] {
    take_preset(*race, *f);
    f->where.prefer_gpu(*race);
    exit_code = run(*f, *optimizer);
  });
}

}  // namespace gallop::cli
