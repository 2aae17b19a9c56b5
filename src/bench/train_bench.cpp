// SPDX-License-Identifier: MIT
#include "bench/train_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>

#include "bench/machine.h"
#include "bench/nvml.h"
#include "bench/products.h"
#include "bench/sampler.h"
#include "bench/statistics.h"
#include "core/random.h"
#include "cpu/thread_pool.h"
#include "cuda/timing.h"
#include "gallop/error.h"

namespace gallop::bench {
namespace {

constexpr double kMb = 1 << 20;
constexpr int64_t kBatches = 4;  // made before the first step and used in turns

bool on_gpu(const TrainCase& c) { return c.options.device.kind == Device::Kind::cuda; }
lab::Row identity(const TrainCase& c) {
  const gpt::TrainerOptions& o = c.options;
  const bool optimized = o.optimizer != "none";
  lab::Row row;
  row.set("model", c.model).set("context", o.time).set("batch", o.batch);
  row.set("precision", gpt::to_string(o.compute)).set("mode", o.compiled ? "compiled" : "eager");
  row.set("optimizer", o.optimizer).set("state", optimized ? c.state.c_str() : nullptr);
  const bool rounds = optimized && gpt::in_16_bits(o);
  row.set("rounding", rounds ? to_string(o.rounding).data() : nullptr);
  row.set("attention", attention_name(o.attention)).set("recompute", o.checkpoints ? "yes" : "no");
  row.set("overlap", optimized && o.overlap ? "yes" : "no");
  row.set("accumulation", o.accumulation).set("warmup", c.warmup);
  row.set("device", to_string(o.device));
  if (!on_gpu(c)) row.set("threads", o.threads > 0 ? o.threads : cpu::default_threads());
  row.end_config();
  row.set("parameters", gpt::parameter_count(o.config));
  return row;
}

// The system hands out more than there is, and ends who uses it.
void require_memory(const TrainCase& c, double bytes, const char* of) {
  if (on_gpu(c)) return;  // it refuses by itself
  const auto have = static_cast<double>(describe_machine().memory_bytes);
  if (have == 0 || bytes <= have) return;
  throw Error(
      ErrorCode::out_of_memory,
      fmt::format("{} of {} at batch {} and context {} take {:.0f} MB, expected at most the "
                  "machine's {:.0f} MB",
                  of, c.model, c.options.batch, c.options.time, bytes / kMb, have / kMb));
}

// One case with all its memory.
class Runner {
 public:
  explicit Runner(const TrainCase& c) : case_(c) {
    const gpt::TrainerOptions& o = c.options;
    const double width = o.compute == gpt::Compute::fp64 ? 8 : gpt::in_16_bits(o) ? 2 : 4;
    require_memory(c, 2 * width * static_cast<double>(gpt::parameter_count(o.config)),
                   "parameters and gradients");
    const double start = seconds_now();
    const DriverUse taken(*this);
    trainer_ = std::make_unique<gpt::Trainer>(o);
    require_memory(c, static_cast<double>(trainer_->memory().total()), "steps");
    first_step_s_ = seconds_now() - start;
    for (int64_t i = 0; i < kBatches * o.accumulation; ++i) {
      batches_.push_back(random_batch(o.config.vocabulary, o.batch, o.time,
                                      combine(o.seed, static_cast<Bits64>(i))));
    }
  }

  size_t bytes() const { return trainer_->memory().total(); }
  gpt::Trainer& trainer() { return *trainer_; }
  bool done(const TrainTiming& t) const {
    const auto n = static_cast<int64_t>(total_.size());
    return n >= t.steps || (t.time_limit_s > 0 && n > 0 && measured_s_ >= t.time_limit_s);
  }

  void step() {
    const auto count = static_cast<size_t>(case_.options.accumulation);
    const auto first = static_cast<size_t>(taken_ % kBatches) * count;
    std::optional<DriverUse> taken;
    if (taken_ < kSettled) taken.emplace(*this);
    const double start = seconds_now();
    std::optional<gpt::Ranges::Scope> warm_up;
    if (taken_ < case_.warmup) warm_up.emplace(trainer_->ranges(), "warm-up");
    trainer_->step(std::span(batches_).subspan(first, count));
    gpt::StepTimes t = trainer_->times();
    if (case_.options.optimizer == "none") t.optimizer = 0;  // not even the time to find that out
    const double wall = seconds_now() - start;
    if (taken_++ == 0) first_step_s_ += wall;
    if (taken_ <= case_.warmup) {
      if (const auto scale = trainer_->loss_scale()) skipped_ = scale->skipped;
      return;
    }
    measured_s_ += wall;
    wall_.push_back(wall);
    forward_.push_back(t.forward);
    backward_.push_back(t.backward);
    optimizer_.push_back(t.optimizer);
    total_.push_back(t.total());
  }

  void add_figures(lab::Row& row, double peak_flops) {
    const gpt::TrainerOptions& o = case_.options;
    add_phase(row, "forward", forward_);
    add_phase(row, "backward", backward_);
    add_phase(row, "optimizer", optimizer_);
    const double median_s = add_phase(row, "total", total_);
    keep_samples(row, "total_median_ms", total_);
    keep_samples(row, "forward_median_ms", forward_);
    keep_samples(row, "backward_median_ms", backward_);
    keep_samples(row, "optimizer_median_ms", optimizer_);
    row.set("wall_ms", mean(wall_) * 1e3).set("steps", total_.size());
    const auto tokens = static_cast<double>(o.batch * o.time * o.accumulation);
    const double flops = tokens * gpt::flops_per_token(o.config, o.time) / median_s;
    row.set("tokens_per_s", tokens / median_s).set("tflop_per_s", flops * 1e-12);
    if (peak_flops > 0) {
      row.set("mfu_percent", 100 * flops / peak_flops).set("peak_tflop_per_s", peak_flops * 1e-12);
    }
    const gpt::MemoryUse use = trainer_->memory();
    for (int i = 0; i < gpt::kMemoryClasses; ++i) {
      const auto name = gpt::to_string(static_cast<gpt::MemoryClass>(i));
      row.set(fmt::format("{}_mb", name), static_cast<double>(use.of[i]) / kMb);
    }
    row.set("peak_mb", static_cast<double>(use.total()) / kMb);
    if (const size_t saved = trainer_->model().grad_bytes_saved(); saved > 0) {
      row.set("gradients_saved_mb", static_cast<double>(saved) / kMb);
    }
    if (on_gpu(case_)) row.set("driver_mb", static_cast<double>(driver_bytes_) / kMb);
    row.set("first_step_s", first_step_s_).set("loss", trainer_->loss());
    if (const auto scale = trainer_->loss_scale()) {
      row.set("loss_scale", static_cast<double>(scale->scale));
      row.set("skipped_steps", scale->skipped - skipped_);
    }
  }

 private:
  // What the driver has less of after than before: libraries' workspaces and graphs too.
  struct DriverUse {
    explicit DriverUse(Runner& r) : runner(r), before(free()) {}
    ~DriverUse() { runner.driver_bytes_ += before - free(); }
    DriverUse(const DriverUse&) = delete;
    DriverUse& operator=(const DriverUse&) = delete;
    int64_t free() const {
      return on_gpu(runner.case_) ? cuda::free_bytes(runner.case_.options.device.index) : 0;
    }
    Runner& runner;
    int64_t before;
  };
  static constexpr int64_t kSettled = 3;  // steps after which nothing more is allocated

  static void keep_samples(lab::Row& row, std::string_view name, const std::vector<double>& s) {
    std::vector<double> each = s;
    for (double& x : each) x *= 1e3;
    row.keep_samples(name, std::move(each));
  }

  static double add_phase(lab::Row& row, std::string_view name, const std::vector<double>& s) {
    row.set(fmt::format("{}_ms", name), mean(s) * 1e3);
    row.set(fmt::format("{}_std_ms", name), stddev(s) * 1e3);
    row.set(fmt::format("{}_median_ms", name), median(s) * 1e3);
    return median(s);
  }

  const TrainCase& case_;
  std::unique_ptr<gpt::Trainer> trainer_;
  std::vector<data::Batch> batches_;
  int64_t taken_ = 0, skipped_ = 0;  // skipped: before the first that is measured
  int64_t driver_bytes_ = 0;
  double first_step_s_ = 0, measured_s_ = 0;
  std::vector<double> forward_, backward_, optimizer_, total_, wall_;
};

// Dense, without sparsity, as NVIDIA states it. 0: not known.
double gpu_peak(const std::string& name, gpt::Compute compute) {
  const bool hopper =
      name.find("H200") != std::string::npos ||
      (name.find("H100") != std::string::npos && name.find("PCIe") == std::string::npos &&
       name.find("NVL") == std::string::npos);
  if (!hopper) return 0;
  switch (compute) {
    case gpt::Compute::bf16:
    case gpt::Compute::fp16:
      return 989.5e12;
    case gpt::Compute::tf32:
      return 494.7e12;
    case gpt::Compute::fp32:
    case gpt::Compute::fp64:  // by tensor cores
      return 67e12;
  }
  return 0;
}

double peak_flops(const TrainCase& c) {
  const gpt::TrainerOptions& o = c.options;
  if (on_gpu(c)) {
    const std::vector<Gpu> gpus = find_gpus();
    const auto index = static_cast<size_t>(o.device.index);
    return index < gpus.size() ? gpu_peak(gpus[index].name, o.compute) : 0;
  }
  if (o.compute != gpt::Compute::fp32 && o.compute != gpt::Compute::fp64) return 0;
  CpuProducts products(o.compute == gpt::Compute::fp64,
                       o.threads > 0 ? o.threads : cpu::default_threads());
  products.run(1);
  std::vector<double> seconds(5);
  for (double& s : seconds) s = Batch{[&](int n) { products.run(n); }, 2}();
  return products.flops() / median(seconds);
}

void add_clocks(lab::Row& row, const GpuWatch::Seen& seen) {
  if (seen.samples == 0) return;
  row.set("slowdown", seen.slowdown);
  row.set("least_sm_mhz", seen.least_sm_mhz).set("most_sm_mhz", seen.most_sm_mhz);
}

const char* status_of(ErrorCode code) {
  if (code == ErrorCode::out_of_memory) return "oom";
  return code == ErrorCode::unsupported ? "unsupported" : "error";
}

// Does the work; a failure becomes the row's result. False if there was one.
bool attempt(lab::Row& row, const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (const Error& e) {
    row.set("status", status_of(e.code())).set("message", e.what());
  } catch (const std::bad_alloc&) {
    row.set("status", "oom").set("message", "the host's memory did not suffice");
  }
  return false;
}

}  // namespace

std::vector<lab::Row> TrainBench::run_together(const std::vector<TrainCase>& cases) {
  std::vector<lab::Row> rows;
  std::vector<std::unique_ptr<Runner>> runners(cases.size());
  size_t bytes = 0;
  bool all_fit = true;
  for (size_t i = 0; i < cases.size(); ++i) {
    const TrainCase& c = cases[i];
    rows.push_back(identity(c));
    lab::Row& row = rows.back();
    const bool made = attempt(row, [&] {
      const Agreement a = checks_.check(c.options);
      row.set("gradient_error", a.gradient_error);
      runners[i] = std::make_unique<Runner>(c);
      if (begin) begin(runners[i]->trainer());
      bytes += runners[i]->bytes();
      require_memory(c, static_cast<double>(bytes), "steps side by side");
    });
    if (!made) runners[i].reset();
    if (!made && std::get<std::string>(*row.find("status")) == "oom") all_fit = false;
  }
  if (!all_fit && cases.size() > 1) {
    runners.clear();
    rows.clear();
    for (const TrainCase& c : cases) rows.push_back(run(c));
    return rows;
  }
  std::unique_ptr<GpuWatch> watch;
  if (on_gpu(cases.front())) {
    watch = std::make_unique<GpuWatch>(cuda::pci_bus_id(cases.front().options.device.index));
  }
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < cases.size(); ++i) {
      if (!runners[i] || runners[i]->done(timing_)) continue;
      more = true;
      if (!attempt(rows[i], [&] { runners[i]->step(); })) runners[i].reset();
    }
  }
  const GpuWatch::Seen seen = watch ? watch->end() : GpuWatch::Seen{};
  for (size_t i = 0; i < cases.size(); ++i) {
    if (!runners[i]) continue;
    runners[i]->add_figures(rows[i], peak_flops(cases[i]));
    add_clocks(rows[i], seen);
    rows[i].set("status", "ok");
    if (look) look(runners[i]->trainer());
    runners[i].reset();
  }
  return rows;
}

}  // namespace gallop::bench
