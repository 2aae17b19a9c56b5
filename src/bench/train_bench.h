// SPDX-License-Identifier: MIT
// Times training steps of models: check first, then warm up, then measure each step's phases.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/train_check.h"
#include "gpt/trainer.h"
#include "lab/row.h"

namespace gallop::bench {

// Everything that is varied, by the names people give it.
struct TrainAxes {
  std::vector<std::string> models = {"nano"};
  std::vector<int64_t> contexts;  // empty: each model's own
  std::vector<int64_t> batches = {4};
  std::vector<std::string> precisions = {"fp32"};
  std::vector<std::string> modes = {"compiled"};       // or eager
  std::vector<std::string> optimizers = {"adamw"};     // or none
  std::vector<std::string> states = {"fp32"};          // policies
  std::vector<std::string> roundings = {"remainder"};  // of 16-bit matrices
  std::vector<std::string> attentions = {"fused"};     // or naive
  std::vector<std::string> recomputations = {"no"};    // or yes
  std::vector<std::string> overlaps = {"no"};          // or yes: updates while backward goes on
  std::vector<int64_t> accumulations = {1};
  std::vector<int64_t> warmups = {5};  // steps that are not in the figures
  Device device;
  int threads = 0;
  uint64_t seed = 1;
};

struct TrainCase {
  std::string model, state;  // as they were asked for
  gpt::TrainerOptions options;
  int64_t warmup = 5;
};

// The full product, each once: without an optimizer state does not vary, and rounding only where
// there are 16 bits. Throws on a name that nothing has.
std::vector<TrainCase> train_cases(const TrainAxes& axes);

struct TrainTiming {
  int64_t steps = 10;       // measured; at most, where there is a time limit
  double time_limit_s = 0;  // for each case; 0: none
};

std::string_view attention_name(gpt::Attention attention);

// Fields of the row: what the case is, status, and where that is ok, times and memory. Memory that
// does not suffice, and what is not supported, are results.
class TrainBench {
 public:
  explicit TrainBench(const TrainTiming& timing) : timing_(timing) {}

  lab::Row run(const TrainCase& c) { return run_together({c}).front(); }
  // A step of each in turns, so that drift of the machine hits all alike; one after the other if
  // memory does not hold all.
  std::vector<lab::Row> run_together(const std::vector<TrainCase>& cases);

  // Are shown every trainer before its first step and after its last one.
  std::function<void(gpt::Trainer&)> begin, look;

 private:
  TrainTiming timing_;
  TrainChecks checks_;
};

enum class TrainColumns { time, memory, all };
TrainColumns parse_train_columns(std::string_view text);

// Which fields tell rows apart: those that vary, always beginning with the model.
std::vector<std::string> varied(const std::vector<lab::Row>& rows);
// For people: what varies and the figures; what does not vary is in the title.
void lay_out(lab::Table& table, TrainColumns columns);
// What was checked, what figures mean, what did not run.
std::vector<std::string> train_notes(const std::vector<lab::Row>& rows);

lab::Table train_bench(const TrainAxes& axes, const TrainTiming& timing,
                       TrainColumns columns = TrainColumns::time,
                       const std::string& profile_memory = "", const std::string& trace = "");

}  // namespace gallop::bench
