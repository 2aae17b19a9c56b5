// SPDX-License-Identifier: MIT
#include "lab/trial_pool.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <iostream>
#include <iterator>
#include <optional>

#include "gallop/error.h"
#include "lab/child_process.h"
#include "lab/cpus.h"

namespace gallop::lab {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> program_of(const TrialPoolOptions& o) {
  if (!o.program.empty()) return o.program;
  return {"/proc/self/exe", "trial"};
}

TrialSpec placed(TrialSpec spec, const TrialPoolOptions& o, size_t job,
                 const std::vector<int>& cpus) {
  if (spec.device.starts_with("cuda") && !o.devices.empty()) {
    spec.device = o.devices[job % o.devices.size()];
  }
  if (!cpus.empty()) spec.threads = static_cast<int>(cpus.size());
  return spec;
}

// Begins what there is room for; the rest stays in its order.
void hand_out(std::deque<size_t>& queue, std::span<const TrialSpec> trials, TrialRunner& runner,
              const TrialEvents& events) {
  for (auto at = queue.begin(); at != queue.end() && !runner.full();) {
    const Turn turn = events.turn(*at);
    if (turn == Turn::later) {
      ++at;
      continue;
    }
    const size_t trial = *at;
    at = queue.erase(at);
    if (turn == Turn::never) continue;
    runner.start(trial, trials[trial]);
    events.begin(trial);
  }
}

}  // namespace

struct TrialPool::Job {
  Job() = default;
  ~Job() { forget(); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  bool busy() const { return child != nullptr; }

  void forget() {
    if (child) child->kill();  // nobody wants its result
    child.reset();
    result.reset();
  }

  // A line is a point or the result.
  void take(const std::string& line, const TrialEvents& events) {
    try {
      const Json json = Json::parse(line);
      if (json.contains("result")) {
        result = result_from(json.at("result"));
      } else {
        events.point(trial, point_from(json.at("point")));
      }
    } catch (const Json::exception&) {  // something else wrote to its output
    }
  }

  void end_if_late(double timeout_s) {
    const double spent = std::chrono::duration<double>(Clock::now() - since).count();
    if (timeout_s == 0 || spent < timeout_s || result) return;
    result.emplace();
    result->end = TrialEnd::timed_out;
    result->train_s = timeout_s;
    result->message = fmt::format("it was ended after {:.4g} s", timeout_s);
    child->kill();
  }

  void finish(const TrialEvents& events) {
    const std::string how = child->wait();
    child.reset();
    if (!result) {
      result.emplace();
      result->end = TrialEnd::lost;
      result->message = fmt::format("its process ended without a result, with {}", how);
    }
    const TrialResult found = std::move(*result);
    result.reset();
    events.end(trial, found);
  }

  size_t trial = 0;
  std::vector<int> cpus;
  std::unique_ptr<ChildProcess> child;
  std::optional<TrialResult> result;
  Clock::time_point since;
};

TrialPool::TrialPool(TrialPoolOptions options) : options_(std::move(options)) {
  if (options_.jobs < 1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} trials at a time, expected at least 1", options_.jobs));
  }
  std::vector<int> cpus;
  if (options_.divide_cpus) cpus = options_.cpus.empty() ? usable_cpus() : options_.cpus;
  jobs_.reserve(static_cast<size_t>(options_.jobs));
  for (int i = 0; i < options_.jobs; ++i) {
    jobs_.push_back(std::make_unique<Job>());
    jobs_.back()->cpus = share_of(cpus, i, options_.jobs);
  }
}

TrialPool::~TrialPool() = default;

bool TrialPool::full() const {
  return std::all_of(jobs_.begin(), jobs_.end(), [](const auto& job) { return job->busy(); });
}

bool TrialPool::idle() const {
  return std::none_of(jobs_.begin(), jobs_.end(), [](const auto& job) { return job->busy(); });
}

void TrialPool::start(size_t trial, const TrialSpec& spec) {
  const auto at =
      std::find_if(jobs_.begin(), jobs_.end(), [](const auto& job) { return !job->busy(); });
  Job& job = **at;
  job.trial = trial;
  job.child = std::make_unique<ChildProcess>(program_of(options_), job.cpus);
  job.since = Clock::now();
  const auto number = static_cast<size_t>(at - jobs_.begin());
  job.child->send(dump(to_json(placed(spec, options_, number, job.cpus))) + '\n');
  job.child->end_input();
}

std::vector<size_t> TrialPool::poll(const TrialEvents& events) {
  std::vector<pollfd> open;
  std::vector<Job*> whose;
  open.reserve(jobs_.size()), whose.reserve(jobs_.size());
  for (const auto& job : jobs_) {
    if (!job->busy()) continue;
    job->end_if_late(options_.timeout_s);
    open.push_back({job->child->socket(), POLLIN, 0});
    whose.push_back(job.get());
  }
  ::poll(open.data(), open.size(), options_.patience_ms);
  for (size_t i = 0; i < open.size(); ++i) {
    if (open[i].revents == 0) continue;
    Job& job = *whose[i];
    const bool more = job.child->receive();
    while (const auto line = job.child->line()) job.take(*line, events);
    if (!more) job.finish(events);
  }
  return {};
}

void TrialPool::stop() {
  for (const auto& job : jobs_) job->forget();
}

void run_trials(std::span<const TrialSpec> trials, std::span<TrialRunner* const> runners,
                const TrialEvents& events) {
  std::deque<size_t> queue;
  for (size_t i = 0; i < trials.size(); ++i) queue.push_back(i);
  while (!events.stop()) {
    for (TrialRunner* runner : runners) hand_out(queue, trials, *runner, events);
    const bool idle =
        std::all_of(runners.begin(), runners.end(), [](const auto* r) { return r->idle(); });
    if (queue.empty() && idle) return;
    for (TrialRunner* runner : runners) {
      const std::vector<size_t> again = runner->poll(events);
      queue.insert(queue.begin(), again.begin(), again.end());
    }
    events.wait();
  }
  for (TrialRunner* runner : runners) runner->stop();
}

void run_trials(std::span<const TrialSpec> trials, const TrialPoolOptions& options,
                const TrialEvents& events) {
  TrialPoolOptions fitted = options;
  fitted.jobs = std::min(options.jobs, std::max(1, static_cast<int>(trials.size())));
  TrialPool pool(fitted);
  TrialRunner* const runners[] = {&pool};
  run_trials(trials, runners, events);
}

int serve_trial() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody is left to hear what comes of it
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
    say({{"point", to_json(p)}});
  });
  say({{"result", to_json(result)}});
  return 0;
}

}  // namespace gallop::lab
