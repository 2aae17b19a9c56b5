// SPDX-License-Identifier: MIT
// One training run of a race or a profile: what it is, and what came of it. Both travel between
// processes and into files as JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gallop/optimizer.h"
#include "lab/row_json.h"

namespace gallop::lab {

struct TrialSpec {
  // As gallop train takes them.
  std::string model = "nano", data = "synthetic", optimizer = "adamw", state = "fp32";
  std::string schedule = "constant", precision = "fp32", device = "cpu";
  Hyper hyper;
  double clip_norm = 0;
  int64_t steps = 100, batch = 8, context = 0;  // context 0: the model's
  int64_t min_length = 0;
  int64_t eval_every = 10, eval_batches = 8;
  uint64_t seed = 1, data_seed = 1;  // of the first parameters, of the order of data
  int threads = 0;

  std::optional<double> target;   // ends with a validation loss as low as this
  std::optional<double> limit_s;  // ends after so many seconds in steps
  bool watch = false;             // what it takes of the machine is looked at
};
int64_t context_of(const TrialSpec& spec);

enum class TrialEnd {
  finished,   // all steps, and there was no target
  reached,    // the target
  missed,     // all steps, and not the target
  timed_out,  // the limit came first
  diverged,   // a loss that is not finite
  oom,
  failed,  // for another reason, which the message says
  lost     // its process ended without a result
};
std::string_view to_string(TrialEnd end);
TrialEnd parse_trial_end(std::string_view text);
std::string count_ends(const std::vector<TrialEnd>& ends);  // "2 finished, 1 oom"

struct TrialPoint {
  int64_t step = 0;
  double train_s = 0;  // in steps, without evaluations and what only the first one does
  double loss = 0;     // smoothed
  double validation = 0;
  double accuracy = std::numeric_limits<double>::quiet_NaN();  // NaN: not known
};

// What a trial takes of the machine.
struct TrialUsage {
  double open_s = 0;     // until the data can be read
  double data_s = 0;     // that a thread beside the steps makes batches
  double prepare_s = 0;  // before the first step, and what the first two take more than later ones
  double total_s = 0;    // all of it
  std::vector<double> step_s;
  double host_mb = 0;  // resident, at most

  std::optional<double> driver_mb;  // of a GPU, as its driver counts: with libraries and context
  // Percent, in steps after the first two: of the time that a GPU does anything, and of what the
  // CPU's threads could do.
  std::optional<double> gpu_util, cpu_util;

  // Steps that take what steps take: a GPU's first loads kernels, its second records a graph.
  static constexpr size_t kSettled = 2;
  double later_step_s() const;  // the mean of those after; of all where there are none
};

struct TrialResult {
  TrialEnd end = TrialEnd::failed;
  std::string message;  // of failures
  std::vector<TrialPoint> points;
  int64_t steps = 0, parameters = 0;
  double train_s = 0, evaluate_s = 0, tokens_per_s = 0;
  double prepare_s = 0;  // what the first step took more than the others, and all before it
  double memory_mb = 0;  // at a step's highest point
  std::vector<std::pair<std::string, double>> class_mb;  // the same by class; empty: not known
  double data_wait_s = 0;
  std::optional<TrialUsage> usage;  // where it was watched
  int64_t spikes = 0;               // of the training loss (loss_spikes.h)
  double worst_spike = 0;           // how far it rose

  // Seconds in steps until the target; infinite unless it was reached.
  double time_to_target_s() const;
  double steps_to_target() const;
  // At the end of the run; infinite where there is none.
  double final_validation() const;
  double best_validation() const;
  // At the end of the run; 0 where there is none, NaN where it is not known.
  double final_accuracy() const;
};

std::string class_field(std::string_view memory_class);  // "state_mb"
void set_classes(Row& row, const TrialResult& result);   // a field for each class of memory

Json to_json(const TrialSpec& spec);
TrialSpec spec_from(const Json& json);  // throws Error where it is none
Json to_json(const TrialPoint& point);
TrialPoint point_from(const Json& json);
Json to_json(const TrialResult& result);
TrialResult result_from(const Json& json);
// The same for trials that would do the same, whatever their threads: a trial that was run is known
// by it.
std::string trial_hash(const TrialSpec& spec);

// In this process. Never throws: what goes wrong is the result.
TrialResult run_trial(const TrialSpec& spec,
                      const std::function<void(const TrialPoint&)>& on_point = {});

}  // namespace gallop::lab
