// SPDX-License-Identifier: MIT
// Trials in processes of their own, several at a time.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lab/trial.h"

namespace gallop::lab {

struct TrialPoolOptions {
  std::vector<std::string> program;  // reads a trial from its input; empty: this one, `trial`
  int jobs = 1;
  // On a CPU each has as many of those that this process may use, its own, and as many threads.
  bool divide_cpus = true;
  std::vector<std::string> devices;  // of trials on GPUs, one for each job in turns; empty: theirs
};

struct TrialEvents {
  std::function<void(size_t)> begin = [](size_t) {};
  std::function<void(size_t, const TrialPoint&)> point = [](size_t, const TrialPoint&) {};
  std::function<void(size_t, const TrialResult&)> end = [](size_t, const TrialResult&) {};
  std::function<void()> wait = [] {};                 // some ten times a second
  std::function<bool()> stop = [] { return false; };  // ends all: what is under way is no result
};

// In the order given. A process that ends without a result is a trial that is lost.
void run_trials(std::span<const TrialSpec> trials, const TrialPoolOptions& options,
                const TrialEvents& events);

// The other side: a trial from standard input, its points and its result to standard output.
int serve_trial();

}  // namespace gallop::lab
