// SPDX-License-Identifier: MIT
// What a trial takes of the machine, looked at from within its process.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "bench/nvml.h"
#include "gpt/run.h"
#include "lab/trial.h"

namespace gallop::lab {

class TrialWatch {
 public:
  TrialWatch(Device device, int threads);  // before anything is allocated

  void opened();              // the data
  void step(double train_s);  // in steps so far, after each
  TrialUsage end(const gpt::RunResult& run);

 private:
  using Clock = std::chrono::steady_clock;
  void settle();
  bool on_gpu() const { return device_.kind == Device::Kind::cuda; }

  Device device_;
  int threads_;
  Clock::time_point begin_ = Clock::now(), settled_;
  double cpu_s_ = 0;  // of the process, when it settled
  std::optional<int64_t> used_before_;
  std::unique_ptr<bench::GpuWatch> gpu_;
  double train_s_ = 0;
  TrialUsage usage_;
};

}  // namespace gallop::lab
