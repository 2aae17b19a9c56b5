// SPDX-License-Identifier: MIT
// A training run on disk. FILE (safetensors) has the parameters under their names, in their types,
// and the rest as metadata; what the optimizer keeps is in FILE.optimizer.STEP, which FILE names.
// That one is written first and the one before it removed last, so that a process may end at any
// moment and FILE is whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/corpus.h"
#include "gpt/trainer.h"

namespace gallop::gpt {

// An average in which the last twenty or so values count.
struct Smoothed {
  static constexpr double kKept = 0.95;
  double sum = 0, weight = 0;

  void add(double x) {
    sum = kKept * sum + (1 - kKept) * x;
    weight = kKept * weight + (1 - kKept);
  }
  double value() const { return weight > 0 ? sum / weight : 0; }
};

// How far a run has come.
struct Progress {
  int64_t step = 0;                            // updates
  int64_t batches = 0;                         // taken from the loader
  double loss = 0;                             // of the last step
  Smoothed smoothed;                           // losses
  std::optional<double> validation, accuracy;  // the last ones
};

// What decides a run's course, by name: a resumed one must have the same.
using Settings = std::vector<std::pair<std::string, std::string>>;
Settings settings_of(Trainer& trainer, const data::Corpus& corpus, uint64_t data_seed,
                     int64_t min_length = 0);

struct Checkpoint {
  Progress progress;
  Settings settings;
  std::string algorithms;  // what libraries chose; the same bits need the same again
};

void save_checkpoint(const std::string& path, Trainer& trainer, const Checkpoint& checkpoint);

// Refuses a file whose settings differ or that has come further than `most_steps`. Changes nothing
// when it throws, unless a GPU fails. Then removes what runs that were ended while they saved have
// left beside it. other_libraries: also one whose libraries' ways this process does not have.
Checkpoint load_checkpoint(const std::string& path, Trainer& trainer, const Settings& expected,
                           int64_t most_steps, bool other_libraries = false);

}  // namespace gallop::gpt
