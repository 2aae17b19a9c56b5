// SPDX-License-Identifier: MIT
// Trials in processes of their own, several at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lab/trial.h"

namespace gallop::lab {

enum class Turn { now, later, never };

struct TrialEvents {
  // Asked before a trial begins, again and again where it is not its turn yet.
  std::function<Turn(size_t)> turn = [](size_t) { return Turn::now; };
  std::function<void(size_t)> begin = [](size_t) {};
  std::function<void(size_t, const TrialPoint&)> point = [](size_t, const TrialPoint&) {};
  std::function<void(size_t, const TrialResult&)> end = [](size_t, const TrialResult&) {};
  std::function<void()> wait = [] {};                 // some ten times a second
  std::function<bool()> stop = [] { return false; };  // ends all: what is under way is no result
};

// Who runs trials: this machine's processes, or other machines.
class TrialRunner {
 public:
  TrialRunner() = default;
  virtual ~TrialRunner() = default;
  TrialRunner(const TrialRunner&) = delete;
  TrialRunner& operator=(const TrialRunner&) = delete;

  virtual bool full() const = 0;
  virtual bool idle() const = 0;
  virtual void start(size_t trial, const TrialSpec& spec) = 0;
  // Tells what has come; returns trials that are to be begun again, by whoever can.
  virtual std::vector<size_t> poll(const TrialEvents& events) = 0;
  virtual void stop() = 0;  // forgets what is under way
};

struct TrialPoolOptions {
  std::vector<std::string> program;  // reads a trial from its input; empty: this one, `trial`
  int jobs = 1;
  // On a CPU each has as many of those that this process may use, its own, and as many threads.
  bool divide_cpus = true;
  std::vector<int> cpus;             // to be divided; empty: all that this process may use
  std::vector<std::string> devices;  // of trials on GPUs, one for each job in turns; empty: theirs
  double timeout_s = 0;              // by the clock, of a trial with all it does; 0: none
  int patience_ms = 100;             // that a poll waits for something to come
};

// Of pools in programs that talk to others meanwhile.
constexpr int kPatienceBesideOthersMs = 20;

class TrialPool : public TrialRunner {
 public:
  explicit TrialPool(TrialPoolOptions options);
  ~TrialPool() override;

  bool full() const override;
  bool idle() const override;
  void start(size_t trial, const TrialSpec& spec) override;
  std::vector<size_t> poll(const TrialEvents& events) override;  // waits a moment; returns none
  void stop() override;
  int jobs() const { return options_.jobs; }

 private:
  struct Job;
  TrialPoolOptions options_;
  std::vector<std::unique_ptr<Job>> jobs_;
};

// In the order given, by the first runner that has room. A process that ends without a result is a
// trial that is lost.
void run_trials(std::span<const TrialSpec> trials, std::span<TrialRunner* const> runners,
                const TrialEvents& events);
void run_trials(std::span<const TrialSpec> trials, const TrialPoolOptions& options,
                const TrialEvents& events);

// The other side: a trial from standard input, its points and its result to standard output.
int serve_trial();

}  // namespace gallop::lab
