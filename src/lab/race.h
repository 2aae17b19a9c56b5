// SPDX-License-Identifier: MIT
// Optimizers trained on the same things, tuned at the same cost, and compared at the end.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/contender.h"
#include "lab/search_space.h"
#include "lab/trial.h"

namespace gallop::lab {

struct Racer : Contender {
  std::vector<Settings> candidates;  // hyper-parameters to choose from; one: nothing to choose
};

// What is trained on: a model and data.
struct Workload {
  std::string name, model, data;
};

enum class Goal {
  loss,    // at the end of the same number of steps
  target,  // the time to a validation loss
  budget   // the loss after the same time
};

struct RaceOptions {
  std::vector<Racer> racers;
  std::vector<Workload> workloads;
  TrialSpec base;  // all that racers and workloads do not say
  Goal goal = Goal::loss;
  double target = 0, budget_s = 0;
  int64_t tune_seeds = 1, seeds = 5;  // four against four can differ by more than chance
  uint64_t first_seed = 1;
  std::string folder;  // of finished trials; who looks on finds how far it is there; may be empty
};

// A trial's part in a race.
struct Entry {
  enum class Stage { pace, tune, final };
  Stage stage = Stage::final;
  size_t racer = 0, workload = 0, candidate = 0;
  uint64_t seed = 1;
  TrialSpec spec;
};

struct Finished {
  Entry entry;
  TrialResult result;
};

// What one racer did on one workload.
struct Standing {
  size_t racer = 0, workload = 0;
  std::optional<size_t> best;    // of the candidates; none: all of them failed
  std::vector<Finished> tuned;   // by candidate, then seed
  std::vector<Finished> finals;  // by seed, with the best
  double tuning_s = 0;           // in steps of all that was tried
};

struct RaceResult {
  std::vector<Standing> standings;  // by workload, then racer
  bool whole = false;               // false: it was stopped
};

// Runs entries that are not in the folder yet, and tells every one that is done, from there or new.
using RunEntries = std::function<bool(const std::vector<Entry>& entries,
                                      std::map<std::string, TrialResult>& done)>;

// Stage by stage: how fast steps are (for a budget), tuning, finals with seeds that tuning has not
// seen. `run` is given each stage's entries and fills in results by trial_hash; false: stopped.
RaceResult run_race(const RaceOptions& options, const RunEntries& run);

// What is compared: seconds or a loss; low is good, and a miss is infinite.
double figure(const RaceOptions& options, const TrialResult& result);

std::vector<double> figures(const RaceOptions& options, const Standing& standing);  // of its finals
const char* figure_name(Goal goal);
std::string settings_text(const Settings& settings);  // "lr=0.01 beta1=0.9"

// Hyper-parameters worth trying, for every rule that is built in: lr, around what its authors use.
SearchRange usual_range(const std::string& optimizer);

}  // namespace gallop::lab
