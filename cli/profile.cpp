// SPDX-License-Identifier: MIT
#include "lab/profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/common.h"
#include "cli/trials.h"
#include "gallop/error.h"
#include "gallop/rules.h"
#include "lab/signals.h"

namespace gallop::cli {
namespace {

constexpr const char* kRuns = "profile run";

struct ProfileFlags {
  Output output;
  Where where;
  RuleFiles rules;
  lab::ProfileOptions profile;
  std::vector<std::string> optimizers = {"adamw", "adam", "lion", "lion:8bit", "sgd"};
  std::string baseline;
  int jobs = 1;
  std::vector<std::string> notes;

  lab::TrialSpec& base() { return profile.base; }
};

void declare(CLI::App& app, ProfileFlags& f, const char* kind) {
  CLI::Validator positive = CLI::Range(int64_t{1}, int64_t{1} << 40).description("");
  const auto count = [&](const char* flag, int64_t& value, const char* about) {
    return app.add_option(flag, value, about)->check(positive)->type_name("N");
  };
  lab::TrialSpec& base = f.base();
  app.add_option("--model", base.model, "nano, char, gpt2, S ...")
      ->type_name("MODEL")
      ->capture_default_str();
  app.add_option("--data", base.data, "As of gallop train")
      ->type_name("SOURCE")
      ->capture_default_str();
  count("--steps", base.steps, "Of each run; the first two warm up")->capture_default_str();
  count("--batch", base.batch, "Sequences in a batch")->capture_default_str();
  count("--context", base.context, "Tokens in a sequence; default: the model's");
  count("--min-length", base.min_length,
        "Sequences have so many tokens to --context, and the rest is padding");
  app.add_option("--precision", base.precision, "fp32, tf32, bf16, fp16")->capture_default_str();
  count("--repeat", f.profile.repeats, "Runs of each, every one with new seeds")
      ->capture_default_str();
  app.add_option("--jobs", f.jobs, "Runs at a time; more than one disturb each other")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  f.where.add_to(app);
  f.output.add_to(app);
  f.output.keep_as(app, kind);
}

// What is wrong with all of them, and for one reason, is wrong with what was asked for.
void refuse_hopeless(const std::vector<lab::ProfileRun>& runs) {
  const lab::TrialResult& first = runs.front().result;
  const bool all = std::all_of(runs.begin(), runs.end(), [&](const lab::ProfileRun& r) {
    return r.result.end == lab::TrialEnd::failed && r.result.message == first.message;
  });
  if (all) throw Error(ErrorCode::invalid_argument, first.message);
}

// The last of the tables has differences, unless there is nothing to compare.
void keep(const ProfileFlags& f, const lab::Table& summary, lab::Table last) {
  if (last.rows == summary.rows) return f.output.keep({summary});
  const std::string& to = f.profile.contenders[f.profile.baseline].name;
  for (lab::Row& row : last.rows) row = row.in_front("compared_with", to);
  last.notes.clear();  // what is read from them is said once
  f.output.keep({summary, last});
}

int run(ProfileFlags& f) {
  lab::ProfileOptions& o = f.profile;
  f.where.parsed();
  o.base.device = f.where.device;
  o.base.threads = f.where.threads;
  o.first_seed = f.where.seed;
  for (const std::string& text : f.optimizers) o.contenders.push_back(lab::parse_contender(text));
  if (!f.baseline.empty()) o.baseline = lab::find_contender(o.contenders, f.baseline);
  std::vector<lab::ProfileRun> runs = lab::plan_profile(o);
  const lab::Signals signals;
  const bool whole =
      lab::run_profile(runs, trial_pool(f.where, f.jobs), [] { return lab::Signals::asked(); });
  lab::Table each;
  each.rows = lab::profile_run_rows(o, runs);
  if (!whole) {
    f.output.keep({each}, kRuns);
    fmt::print(stderr, "gallop: stopped; {} runs had ended{}\n", runs.size(),
               runs.empty() ? "" : fmt::format(": gallop history --kind '{}'", kRuns));
    return kInterrupted;
  }
  refuse_hopeless(runs);
  if (f.jobs > 1) f.notes.push_back(fmt::format("{} runs at a time share the machine", f.jobs));
  f.notes.emplace_back("this is what steps cost; gallop race says what they reach");
  f.output.keep({each}, kRuns);
  const lab::Table summary = lab::profile_summary(o, runs);
  std::vector<lab::Table> tables = lab::profile_tables(o, runs);
  keep(f, summary, tables.back());
  if (f.output.for_people()) {
    for (const std::string& note : f.notes) tables.back().notes.push_back(note);
    f.output.show_all(tables);
  } else {
    f.output.show(summary);
  }
  const bool any = std::any_of(runs.begin(), runs.end(), [](const lab::ProfileRun& r) {
    return r.result.end == lab::TrialEnd::finished;
  });
  return any ? 0 : 1;
}

// As the profile that people made by hand has it; what a CPU cannot do is said.
void fit_suite(ProfileFlags& f, const CLI::App& app, bool all) {
  const bool gpu = f.where.device.starts_with("cuda");
  lab::TrialSpec& base = f.base();
  const auto given = [&](const char* flag) { return app.count(flag) > 0; };
  if (!given("--model")) base.model = gpu ? "gpt2" : "nano";
  if (!given("--steps")) base.steps = gpu ? 200 : 50;
  if (!given("--precision")) {
    base.precision = gpu ? "fp16" : "fp32";
    if (!gpu) f.notes.emplace_back("fp16 needs a GPU: this is fp32");
  }
  if (!given("--min-length")) base.min_length = std::max<int64_t>(1, lab::context_of(base) / 4);
  f.notes.emplace_back(
      "every optimizer here is fused; adam fp32 is what the suite calls fused adam");
  if (!all) return;
  for (const std::string& name : rule_names()) {
    const auto& named = f.optimizers;
    if (std::find(named.begin(), named.end(), name) == named.end()) f.optimizers.push_back(name);
  }
}

}  // namespace

void add_profile(CLI::App& app, int& exit_code) {
  auto f = std::make_shared<ProfileFlags>();
  f->base().steps = 50;
  CLI::App* profile = app.add_subcommand(
      "profile",
      "What optimizers take of the machine: time, warm-up apart, memory, utilisation; each run in "
      "a process of its own, repeated, and read no further than the noise allows");
  const CLI::Option* optimizer =
      profile->add_option("--optimizer", f->optimizers, "NAME or NAME:STATE, such as lion:8bit")
          ->delimiter(',')
          ->type_name("NAME")
          ->capture_default_str();
  profile
      ->add_option("--baseline", f->baseline,
                   "Which of them the others are compared with; default: the first")
      ->type_name("NAME");
  f->rules.add_to(*profile);
  declare(*profile, *f, "profile");
  profile->callback([f, profile, optimizer, &exit_code] {
    f->where.prefer_gpu(*profile);
    f->optimizers = f->rules.beside(*optimizer, f->optimizers);
    exit_code = run(*f);
  });
}

void add_suite_profile(CLI::App& suite, int& exit_code) {
  auto f = std::make_shared<ProfileFlags>();
  auto all = std::make_shared<bool>(false);
  f->optimizers = {"adafactor", "adamw",     "adamp",     "qhm",
                   "sophiag",   "adam:8bit", "lion:8bit", "adam"};
  f->baseline = "adamw";
  f->base().batch = 6;
  CLI::App* profile = suite.add_subcommand("profile",
                                           "Eight optimizers at a batch of 6 padded sequences, as "
                                           "gallop profile has it: gpt2 in fp16 on "
                                           "a GPU, nano on a CPU");
  profile->add_flag("--all", *all, "All other optimizers too");
  declare(*profile, *f, "suite profile");
  for (const char* flag : {"--model", "--steps", "--precision"}) {
    profile->get_option(flag)->default_str("");  // what fits the device
  }
  profile->callback([f, all, profile, &exit_code] {
    f->where.prefer_gpu(*profile);
    fit_suite(*f, *profile, *all);
    exit_code = run(*f);
  });
}

}  // namespace gallop::cli
