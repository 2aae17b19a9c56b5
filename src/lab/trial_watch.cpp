// SPDX-License-Identifier: MIT
#include "lab/trial_watch.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <span>
#include <string>

#include "bench/statistics.h"
#include "cpu/thread_pool.h"
#include "cuda/timing.h"

namespace gallop::lab {
namespace {

constexpr double kMb = 1 << 20;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double cpu_seconds() {
  rusage use = {};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

// Not getrusage's, in which what started this process counts too.
double most_resident_mb() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    double kb = 0;
    if (word == "VmHWM:" && status >> kb) return kb / 1024;
  }
  return 0;
}

}  // namespace

TrialWatch::TrialWatch(Device device, int threads)
    : device_(device), threads_(threads > 0 ? threads : cpu::default_threads()) {
  if (on_gpu()) used_before_ = bench::used_bytes(cuda::pci_bus_id(device.index));
}

void TrialWatch::opened() { usage_.open_s = seconds_since(begin_); }

void TrialWatch::step(double train_s) {
  usage_.step_s.push_back(train_s - train_s_);
  train_s_ = train_s;
  if (usage_.step_s.size() == TrialUsage::kSettled) settle();
}

void TrialWatch::settle() {
  if (on_gpu()) {
    gpu_ = std::make_unique<bench::GpuWatch>(cuda::pci_bus_id(device_.index), true);
  }
  settled_ = Clock::now();
  cpu_s_ = cpu_seconds();
}

TrialUsage TrialWatch::end(const gpt::RunResult& run) {
  TrialUsage& u = usage_;
  if (u.step_s.size() > TrialUsage::kSettled) {
    u.cpu_util = 100 * (cpu_seconds() - cpu_s_) / (seconds_since(settled_) * threads_);
  }
  const bench::GpuWatch::Seen seen = gpu_ ? gpu_->end() : bench::GpuWatch::Seen{};
  u.gpu_util = seen.busy_percent;
  if (seen.process_bytes) {
    u.driver_mb = static_cast<double>(*seen.process_bytes) / kMb;
  } else if (used_before_) {
    const auto now = bench::used_bytes(cuda::pci_bus_id(device_.index));
    if (now) u.driver_mb = static_cast<double>(std::max<int64_t>(0, *now - *used_before_)) / kMb;
  }
  u.host_mb = most_resident_mb();
  u.data_s = run.data_work_s;
  if (!u.step_s.empty()) u.prepare_s = run.start_s - u.step_s[0];
  if (u.step_s.size() > TrialUsage::kSettled) {
    const std::span first = std::span(u.step_s).first(TrialUsage::kSettled);
    const double later = bench::median(std::span(u.step_s).subspan(TrialUsage::kSettled));
    for (const double s : first) u.prepare_s += std::max(0.0, s - later);
  }
  u.total_s = seconds_since(begin_);
  return u;
}

}  // namespace gallop::lab
