// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/statistics.h"

namespace gallop::bench {

double seconds_now();  // monotonic, from an arbitrary start

struct Contender {
  std::string name;
  std::function<double()> sample;  // runs one sample, returns seconds per iteration
};

struct SamplerOptions {
  double spread_target = 0.01;  // relative half width of the median's 95 % interval
  double time_limit_s = 1.0;    // per contender, warm-up not counted
  int min_samples = 10;         // taken even when the time limit has passed
  int max_samples = 10000;      // also bounds the warm-up
  uint64_t seed = 1;            // of the order within the rounds
  double warmup_limit_s = 0.3;  // per contender; 0 skips the warm-up
  std::function<double()> now = seconds_now;
};

struct Measurement {
  std::string name;
  Summary summary;
  std::vector<double> samples;  // seconds per iteration, in the order taken
  std::string stopped_by;       // "spread", "time limit" or "max samples"
  int warmup_samples = 0;
  double relative_spread = 0;  // infinite below 6 samples
};

// Warms every contender up, then runs rounds in which each unfinished contender takes one sample in
// a freshly shuffled order, so that drift of the machine hits all alike. on_round gets the number
// of rounds done so far. The result is in the order of the contenders.
std::vector<Measurement> measure(std::vector<Contender>& contenders, const SamplerOptions& options,
                                 const std::function<void(size_t)>& on_round = {});

// Work too short for the clock, repeated so often that one sample is not; usable as
// Contender::sample.
struct Batch {
  std::function<void(int)> run;  // does so many iterations
  int iterations = 1;
  std::function<double()> now = seconds_now;

  double operator()() const;  // seconds per iteration
};

// The number of iterations with which one run takes at least min_seconds (200e-6 is plenty for a
// nanosecond clock).
int calibrate_iterations(const std::function<void(int)>& run, double min_seconds,
                         const std::function<double()>& now = seconds_now);

}  // namespace gallop::bench
