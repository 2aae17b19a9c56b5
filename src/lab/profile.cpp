// SPDX-License-Identifier: MIT
#include "lab/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "gallop/error.h"
#include "lab/progress.h"

namespace gallop::lab {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

}  // namespace

size_t find_contender(const std::vector<Contender>& contenders, const std::string& text) {
  const std::string name = parse_contender(text).name;
  std::vector<std::string> names;
  names.reserve(contenders.size());
  for (size_t i = 0; i < contenders.size(); ++i) {
    if (contenders[i].name == name) return i;
    names.push_back(contenders[i].name);
  }
  refuse(
      fmt::format("baseline {} is not profiled, expected one of {}", name, fmt::join(names, ", ")));
}

std::vector<ProfileRun> plan_profile(const ProfileOptions& o) {
  const size_t count = o.contenders.size();
  if (count == 0) refuse("a profile of 0 optimizers, expected at least one");
  if (o.repeats < 1) refuse(fmt::format("{} repeats, expected at least one", o.repeats));
  const auto least = static_cast<int64_t>(TrialUsage::kSettled + 1);
  if (o.base.steps < least) {
    refuse(fmt::format("{} steps, expected at least {}: the first {} warm up", o.base.steps, least,
                       TrialUsage::kSettled));
  }
  std::vector<ProfileRun> runs;
  runs.reserve(count * static_cast<size_t>(o.repeats));
  for (int64_t repeat = 0; repeat < o.repeats; ++repeat) {
    for (size_t i = 0; i < count; ++i) {
      const size_t contender = (i + static_cast<size_t>(repeat)) % count;
      ProfileRun run{contender, repeat, o.base, {}};
      run.spec.optimizer = o.contenders[contender].optimizer;
      run.spec.state = o.contenders[contender].state;
      run.spec.seed = run.spec.data_seed = o.first_seed + static_cast<uint64_t>(repeat);
      run.spec.eval_every = 0;
      run.spec.watch = true;
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

bool run_profile(std::vector<ProfileRun>& runs, const TrialPoolOptions& pool,
                 const std::function<bool()>& stop) {
  if (runs.empty()) return true;
  std::vector<TrialSpec> trials = {runs.front().spec};
  trials[0].steps = static_cast<int64_t>(TrialUsage::kSettled + 1);
  bool stopped = false;
  TrialEvents events;
  events.stop = [&] { return stopped = stop(); };
  run_trials(trials, pool, events);
  if (stopped) return runs.clear(), false;
  trials.clear();
  for (const ProfileRun& run : runs) trials.push_back(run.spec);
  Progress progress("profile", static_cast<int64_t>(runs.size()));
  std::set<size_t> under_way;
  std::vector<ProfileRun> ended;
  const auto detail = [&] {
    std::vector<std::string> names;
    for (const size_t i : under_way) {
      const TrialSpec& spec = runs[i].spec;
      names.push_back(
          fmt::format("{} {}, repeat {}", spec.optimizer, spec.state, runs[i].repeat + 1));
    }
    return fmt::format("{}", fmt::join(names, "; "));
  };
  events.begin = [&](size_t i) { under_way.insert(i); };
  events.end = [&](size_t i, const TrialResult& result) {
    runs[i].result = result;
    ended.push_back(runs[i]);
    under_way.erase(i);
    progress.advance(1, detail());
  };
  events.wait = [&] { progress.advance(0, detail()); };
  run_trials(trials, pool, events);
  if (stopped) runs = std::move(ended);
  return !stopped;
}

}  // namespace gallop::lab
