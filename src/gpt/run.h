// SPDX-License-Identifier: MIT
// Training from the first step to the last.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "data/corpus.h"
#include "data/loader.h"
#include "gpt/checkpoint.h"
#include "gpt/trainer.h"

namespace gallop::gpt {

struct RunOptions {
  int64_t steps = 100;  // in all: with those that a resumed run has behind it
  uint64_t data_seed = 1;
  int64_t min_length = 0;    // tokens in a sequence, up to the context; see data::LoaderOptions
  int64_t eval_every = 0;    // steps, and at the end; 0: never
  int64_t eval_batches = 8;  // at most
  bool keep_going = false;   // with a loss that is not finite

  std::string checkpoint;  // a file; empty: none
  int64_t save_every = 0;  // steps; 0: with every evaluation. Also at the end
  bool resume = false;
  bool other_libraries = false;  // also where libraries are not those it began with: other bits

  // What start_s counts from.
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

struct StepReport {
  int64_t step = 0;  // updates so far
  double loss = 0, smoothed = 0, lr = 0;
  double tokens_per_s = 0;                     // of the last steps
  double train_s = 0;                          // in steps so far, evaluations and savings left out
  std::optional<double> validation, accuracy;  // the last ones
  std::optional<LossScale> scale;              // of the next step's loss
  bool evaluated = false;                      // after this step
};

struct RunResult {
  enum class End { finished, stopped, diverged };
  End end = End::finished;
  int64_t first = 0;  // step of the checkpoint that the run went on from
  Progress progress;
  int64_t tokens = 0;  // trained on, the steps before `first` included
  double tokens_per_s = 0;
  double total_s = 0, train_s = 0, evaluate_s = 0, save_s = 0;
  double start_s = 0;                       // until the first step was done
  double data_wait_s = 0, data_work_s = 0;  // that steps waited, that making batches took
};

struct RunCallbacks {
  std::function<void(int64_t first)> begin = [](int64_t) {};  // step it begins with
  std::function<void(const StepReport&)> step = [](const StepReport&) {};
  std::function<bool()> stop = [] { return false; };  // after the step at hand, which is saved
};

// A schedule that ends ends with the run, unless it says when.
Schedule schedule_over(const std::string& text, int64_t steps);

RunResult run(Trainer& trainer, const data::Corpus& corpus, const RunOptions& options,
              const RunCallbacks& callbacks = {});

// Does the work with parameters as their rule wants them evaluated. They have the bits they had
// after it: what a schedule-free rule computes to and fro does not.
void while_evaluating(Trainer& trainer, const std::function<void()>& work);

// Over all targets that count.
struct Evaluation {
  double loss = 0;
  double accuracy = 0;  // the share that was held to be the likeliest
};
Evaluation evaluate(Trainer& trainer, std::span<const data::Batch> batches);

}  // namespace gallop::gpt
