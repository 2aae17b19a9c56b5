// SPDX-License-Identifier: MIT
#include "bench/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "gallop/error.h"

namespace gallop::bench {
namespace {

constexpr size_t kWarmupWindow = 5;
constexpr double kWarmupTolerance = 0.02;
constexpr int kMostIterations = 1 << 30;

void require(bool good, const std::string& message) {
  if (!good) throw Error(ErrorCode::invalid_argument, message);
}

void check_limit(const char* name, double value) {
  require(value >= 0 && std::isfinite(value),
          fmt::format("{} is {}, expected a finite number of at least 0", name, value));
}

void check(const std::vector<Contender>& contenders, const SamplerOptions& options) {
  check_limit("spread_target", options.spread_target);
  check_limit("time_limit_s", options.time_limit_s);
  check_limit("warmup_limit_s", options.warmup_limit_s);
  require(options.min_samples >= 1,
          fmt::format("min_samples is {}, expected at least 1", options.min_samples));
  require(options.max_samples >= options.min_samples,
          fmt::format("max_samples is {}, expected at least min_samples, which is {}",
                      options.max_samples, options.min_samples));
  require(options.now != nullptr, "the sampler's clock is empty, expected a function");
  for (const Contender& contender : contenders) {
    require(contender.sample != nullptr,
            fmt::format("contender '{}' has no sample function, expected one", contender.name));
  }
}

double take_sample(Contender& contender) {
  const double seconds = contender.sample();
  require(seconds >= 0 && std::isfinite(seconds),
          fmt::format("contender '{}' returned a sample of {} s, expected a finite number of at "
                      "least 0",
                      contender.name, seconds));
  return seconds;
}

bool has_settled(std::span<const double> samples) {
  if (samples.size() < 2 * kWarmupWindow) return false;
  const double recent = median(samples.last(kWarmupWindow));
  const double before = median(samples.last(2 * kWarmupWindow).first(kWarmupWindow));
  return std::fabs(recent - before) <= kWarmupTolerance * before;
}

int warm_up(Contender& contender, const SamplerOptions& options) {
  std::vector<double> samples;
  const double start = options.now();
  while (options.now() - start < options.warmup_limit_s &&
         samples.size() < static_cast<size_t>(options.max_samples) && !has_settled(samples)) {
    samples.push_back(take_sample(contender));
  }
  return static_cast<int>(samples.size());
}

// One contender's part of a measurement.
class Run {
 public:
  Run(Contender& contender, const SamplerOptions& options)
      : contender_(contender),
        options_(options),
        next_look_(static_cast<size_t>(options.min_samples)) {
    result_.name = contender.name;
    result_.warmup_samples = warm_up(contender, options);
  }

  bool finished() const { return !result_.stopped_by.empty(); }

  void step() {
    const double start = options_.now();
    result_.samples.push_back(take_sample(contender_));
    spent_s_ += options_.now() - start;
    decide();
  }

  Measurement take() {
    result_.summary = summarize(result_.samples);
    return std::move(result_);
  }

 private:
  void decide() {
    const size_t n = result_.samples.size();
    if (n < static_cast<size_t>(options_.min_samples)) return;
    const bool full = n >= static_cast<size_t>(options_.max_samples);
    const bool late = spent_s_ >= options_.time_limit_s;
    if (n < next_look_ && !full && !late) return;
    // Looking sorts all samples, so it waits for a tenth more of them each time.
    next_look_ = n + n / 10 + 1;
    result_.relative_spread = relative_halfwidth_of_median(result_.samples);
    if (result_.relative_spread <= options_.spread_target) {
      result_.stopped_by = "spread";
    } else if (full) {
      result_.stopped_by = "max samples";
    } else if (late) {
      result_.stopped_by = "time limit";
    }
  }

  Contender& contender_;
  const SamplerOptions& options_;
  size_t next_look_;
  double spent_s_ = 0;
  Measurement result_;
};

// Fisher-Yates by hand: std::shuffle's order differs between standard libraries.
void shuffle(std::vector<size_t>& order, std::mt19937_64& random) {
  for (size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[random() % left]);
  }
}

}  // namespace

std::vector<Measurement> measure(std::vector<Contender>& contenders, const SamplerOptions& options,
                                 const std::function<void(size_t)>& on_round) {
  check(contenders, options);
  std::vector<Run> runs;
  runs.reserve(contenders.size());
  for (Contender& contender : contenders) runs.emplace_back(contender, options);

  std::mt19937_64 random(options.seed);
  std::vector<size_t> unfinished(runs.size());
  std::iota(unfinished.begin(), unfinished.end(), size_t{0});
  for (size_t rounds = 1; !unfinished.empty(); ++rounds) {
    shuffle(unfinished, random);
    for (const size_t i : unfinished) runs[i].step();
    std::erase_if(unfinished, [&runs](size_t i) { return runs[i].finished(); });
    if (on_round) on_round(rounds);
  }

  std::vector<Measurement> results;
  results.reserve(runs.size());
  for (Run& run : runs) results.push_back(run.take());
  return results;
}

double seconds_now() {
  // Counted from the first call, since a double would round nanoseconds after a year of uptime.
  static const auto start = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Batch::operator()() const {
  const double start = now();
  run(iterations);
  return (now() - start) / iterations;
}

int calibrate_iterations(const std::function<void(int)>& run, double min_seconds,
                         const std::function<double()>& now) {
  check_limit("min_seconds", min_seconds);
  const auto time = [&](int iterations) {
    const double start = now();
    run(iterations);
    return now() - start;
  };
  int iterations = 1;
  while (iterations < kMostIterations) {
    // The faster of two: a first call may pay for page faults or starting threads.
    const double seconds = std::min(time(iterations), time(iterations));
    if (seconds >= min_seconds) break;
    const double factor = std::clamp(1.2 * min_seconds / std::max(seconds, 1e-12), 1.0, 10.0);
    const double wanted = std::max(iterations * factor, iterations + 1.0);
    iterations = static_cast<int>(std::min<double>(wanted, kMostIterations));
  }
  return iterations;
}

}  // namespace gallop::bench
