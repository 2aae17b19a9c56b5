// SPDX-License-Identifier: MIT
#include "lab/trial_pool.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include "gallop/error.h"
#include "lab/child_process.h"

namespace gallop::lab {
namespace {

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> out;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return out;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) out.push_back(cpu);
  }
  return out;
}

// Those of one of several jobs; each has at least one.
std::vector<int> share_of(const std::vector<int>& cpus, int job, int jobs) {
  if (cpus.empty()) return {};
  const size_t n = cpus.size(), count = static_cast<size_t>(jobs), at = static_cast<size_t>(job);
  if (n < count) return {cpus[at % n]};
  return {cpus.begin() + static_cast<std::ptrdiff_t>(n * at / count),
          cpus.begin() + static_cast<std::ptrdiff_t>(n * (at + 1) / count)};
}

struct Job {
  Job() = default;
  ~Job() {
    if (child) child->kill();  // stopped: nobody wants its result
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  size_t trial = 0;
  std::unique_ptr<ChildProcess> child;
  std::optional<TrialResult> result;
};

std::vector<std::string> program_of(const TrialPoolOptions& o) {
  if (!o.program.empty()) return o.program;
  return {"/proc/self/exe", "trial"};
}

TrialSpec placed(TrialSpec spec, const TrialPoolOptions& o, int job, const std::vector<int>& cpus) {
  if (spec.device.starts_with("cuda") && !o.devices.empty()) {
    spec.device = o.devices[static_cast<size_t>(job) % o.devices.size()];
  }
  if (!cpus.empty()) spec.threads = static_cast<int>(cpus.size());
  return spec;
}

// A line is a point or the result.
void take(const std::string& line, Job& job, const TrialEvents& events) {
  try {
    const Json json = Json::parse(line);
    if (json.contains("result")) {
      job.result = result_from(json.at("result"));
    } else {
      TrialResult some;
      some.end = TrialEnd::finished;
      Json whole = to_json(some);
      whole["points"] = Json::array({json.at("point")});
      events.point(job.trial, result_from(whole).points.at(0));
    }
  } catch (const Json::exception&) {  // something else wrote to its output
  }
}

void finish(Job& job, const TrialEvents& events) {
  const std::string how = job.child->wait();
  job.child.reset();
  if (!job.result) {
    job.result.emplace();
    job.result->end = TrialEnd::lost;
    job.result->message = fmt::format("its process ended without a result, with {}", how);
  }
  events.end(job.trial, *job.result);
  job.result.reset();
}

}  // namespace

void run_trials(std::span<const TrialSpec> trials, const TrialPoolOptions& options,
                const TrialEvents& events) {
  if (options.jobs < 1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} trials at a time, expected at least 1", options.jobs));
  }
  const std::vector<std::string> program = program_of(options);
  const std::vector<int> cpus = options.divide_cpus ? usable_cpus() : std::vector<int>();
  std::vector<Job> jobs(std::min(static_cast<size_t>(options.jobs), trials.size()));
  size_t next = 0;
  while (!events.stop()) {
    std::vector<pollfd> open;
    std::vector<Job*> whose;
    for (size_t i = 0; i < jobs.size(); ++i) {
      Job& job = jobs[i];
      if (!job.child && next < trials.size()) {
        const std::vector<int> own =
            share_of(cpus, static_cast<int>(i), static_cast<int>(jobs.size()));
        job.trial = next++;
        job.child = std::make_unique<ChildProcess>(program, own);
        events.begin(job.trial);
        job.child->send(
            dump(to_json(placed(trials[job.trial], options, static_cast<int>(i), own))) + '\n');
        job.child->end_input();
      }
      if (!job.child) continue;
      open.push_back({job.child->socket(), POLLIN, 0});
      whose.push_back(&job);
    }
    if (open.empty()) return;
    constexpr int kPatienceMs = 100;
    poll(open.data(), open.size(), kPatienceMs);
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i].revents == 0) continue;
      Job& job = *whose[i];
      const bool more = job.child->receive();
      while (const auto line = job.child->line()) take(*line, job, events);
      if (!more) finish(job, events);
    }
    events.wait();
  }
}

int serve_trial() {
  const std::string text((std::istreambuf_iterator<char>(std::cin)), {});
  const auto say = [](const Json& json) {
    fmt::print("{}\n", dump(json));
    std::fflush(stdout);
  };
  TrialSpec spec;
  try {
    spec = spec_from(Json::parse(text));
  } catch (const Json::exception& e) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("standard input is no trial ({}), expected JSON", e.what()));
  }
  const TrialResult result = run_trial(spec, [&](const TrialPoint& p) {
    TrialResult some;
    some.points = {p};
    say({{"point", to_json(some).at("points").at(0)}});
  });
  say({{"result", to_json(result)}});
  return 0;
}

}  // namespace gallop::lab
