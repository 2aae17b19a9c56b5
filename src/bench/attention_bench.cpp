// SPDX-License-Identifier: MIT
#include "bench/attention_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>

#include "bench/nvml.h"
#include "bench/sampler.h"
#include "bench/statistics.h"
#include "cpu/thread_pool.h"
#include "cuda/timing.h"
#include "lab/progress.h"
#include "lab/signals.h"

namespace gallop::bench {
namespace {

constexpr double kMb = 1 << 20;
constexpr double kSample_s = 1e-3;  // what is shorter is repeated between two marks
constexpr double kMostCalls = 100;

struct Samples {
  std::vector<double> forward, backward, total;  // seconds of one call
  int64_t calls = 1;                             // in a sample
};

Samples take_samples(AttentionWork& work, const AttentionTiming& timing) {
  Samples s;
  const auto one = [&](int program) {
    work.run(program, s.calls);
    return work.forward_s(s.calls) + work.backward_s(s.calls);
  };
  const auto warm = [&](int program) {
    const double start = seconds_now();
    double last = 0;
    for (int64_t i = 0; i < std::max<int64_t>(timing.warmup, 1); ++i) {
      last = one(program);
      if (seconds_now() - start >= timing.time_limit_s) break;
    }
    return last;
  };
  const double single = warm(0);
  s.calls = static_cast<int64_t>(std::clamp(kSample_s / std::max(single, 1e-9), 1.0, kMostCalls));
  const int program = s.calls > 1 ? 1 : 0;
  if (program == 1) warm(program);
  const double start = seconds_now();
  for (int64_t i = 0; i < timing.steps; ++i) {
    if (i > 0 && seconds_now() - start >= timing.time_limit_s) break;
    s.total.push_back(one(program));
    s.forward.push_back(work.forward_s(s.calls));
    s.backward.push_back(work.backward_s(s.calls));
  }
  return s;
}

void add_phase(lab::Row& row, std::string_view name, const std::vector<double>& s, double flops) {
  const double middle = median(s);
  row.set(fmt::format("{}_median_ms", name), middle * 1e3);
  row.set(fmt::format("{}_ms", name), mean(s) * 1e3);
  row.set(fmt::format("{}_std_ms", name), stddev(s) * 1e3);
  row.set(fmt::format("{}_tflop_per_s", name), flops / middle * 1e-12);
}

const char* status_of(ErrorCode code) {
  if (code == ErrorCode::out_of_memory) return "oom";
  return code == ErrorCode::unsupported ? "unsupported" : "error";
}

}  // namespace

AttentionAgreement AttentionBench::check(const AttentionCase& c) {
  const std::string kind =
      fmt::format("{} {} {}", gpt::to_string(c.compute), attention_name(c.how), c.shape.width);
  auto [at, first] = verdicts_.try_emplace(kind);
  Verdict& v = at->second;
  if (first) {
    try {
      v.agreement = compare_attention(place_, c, seed_);
      require_agreement(v.agreement, c);
    } catch (const Error& e) {
      v.code = e.code();
      v.refused = e.what();
    }
  }
  if (!v.refused.empty()) throw Error(v.code, v.refused);
  return v.agreement;
}

void AttentionBench::measure(const AttentionCase& c, lab::Row& row) {
  const auto ops = attention_ops(place_, c);
  AttentionWork work(*ops, c);  // what cannot be done need not be checked
  const AttentionMemory& m = work.memory();
  row.set("model_mb", m.model / kMb).set("saved_mb", m.saved / kMb);
  row.set("scratch_mb", m.scratch / kMb).set("gradients_mb", m.gradients / kMb);
  row.set("peak_mb", m.total() / kMb);
  row.set("check_error", check(c).error);
  work.fill(seed_);
  std::unique_ptr<GpuWatch> watch;
  if (place_.device.kind == Device::Kind::cuda) {
    watch = std::make_unique<GpuWatch>(cuda::pci_bus_id(place_.device.index));
  }
  const Samples s = take_samples(work, timing_);
  // Those below the diagonal alone, counted alike for all: backward has five products to
  // forward's two, the scores once more among them.
  const gpt::AttentionShape& shape = c.shape;
  const double forward = 2 * static_cast<double>(shape.batch) * static_cast<double>(shape.heads) *
                         static_cast<double>(shape.width) *
                         std::pow(static_cast<double>(shape.time), 2);
  add_phase(row, "forward", s.forward, forward);
  add_phase(row, "backward", s.backward, 2.5 * forward);
  add_phase(row, "total", s.total, 3.5 * forward);
  row.set("steps", s.total.size()).set("calls", s.calls);
  const GpuWatch::Seen seen = watch ? watch->end() : GpuWatch::Seen{};
  if (seen.samples > 0) {
    row.set("slowdown", seen.slowdown);
    row.set("least_sm_mhz", seen.least_sm_mhz).set("most_sm_mhz", seen.most_sm_mhz);
  }
}

lab::Row AttentionBench::run(const AttentionCase& c) {
  const bool gpu = place_.device.kind == Device::Kind::cuda;
  lab::Row row;
  row.set("batch", c.shape.batch).set("heads", c.shape.heads);
  row.set("sequence", c.shape.time).set("width", c.shape.width);
  row.set("precision", gpt::to_string(c.compute)).set("attention", attention_name(c.how));
  row.set("device", to_string(place_.device));
  if (gpu) {
    row.set("deterministic", place_.deterministic);
  } else {
    row.set("threads", place_.threads > 0 ? place_.threads : cpu::default_threads());
  }
  row.end_config().set("status", "ok");
  try {
    measure(c, row);
  } catch (const Error& e) {
    row.set("status", status_of(e.code())).set("message", e.what());
  } catch (const std::bad_alloc&) {
    row.set("status", "oom").set("message", "the host's memory did not suffice");
  }
  return row;
}

std::vector<lab::Row> run_attention(const AttentionAxes& axes, const AttentionTiming& timing) {
  const std::vector<AttentionCase> cases = attention_cases(axes);
  AttentionBench bench(axes.place, timing, axes.seed);
  lab::Progress progress("bench attention", static_cast<int64_t>(cases.size()));
  std::vector<lab::Row> rows;
  for (const AttentionCase& c : cases) {
    rows.push_back(bench.run(c));
    progress.advance(1, describe(c));
    if (lab::Signals::asked()) break;
  }
  return rows;
}

}  // namespace gallop::bench
