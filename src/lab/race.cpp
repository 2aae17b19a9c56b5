// SPDX-License-Identifier: MIT
#include "lab/race.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "bench/compare.h"
#include "gallop/error.h"
#include "gallop/rules.h"

namespace gallop::lab {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int64_t kPaceSteps = 20;

class Race {
 public:
  Race(const RaceOptions& o, const RunEntries& run) : o_(o), run_(run) { check(); }

  RaceResult go() {
    RaceResult result;
    for (size_t w = 0; w < o_.workloads.size(); ++w) {
      for (size_t r = 0; r < o_.racers.size(); ++r) {
        Standing s;
        s.racer = r, s.workload = w;
        result.standings.push_back(s);
      }
    }
    if (o_.goal == Goal::budget && !find_paces(result.standings)) return result;
    if (!tune(result.standings)) return result;
    result.whole = finish(result.standings);
    return result;
  }

 private:
  void check() const {
    const auto refuse = [](const std::string& what) {
      throw Error(ErrorCode::invalid_argument, what);
    };
    if (o_.racers.empty()) refuse("a race of 0 optimizers, expected at least one");
    if (o_.workloads.empty()) refuse("a race over 0 workloads, expected at least one");
    if (o_.seeds < 1 || o_.tune_seeds < 1) {
      refuse(fmt::format("{} seeds and {} for tuning, expected at least one of each", o_.seeds,
                         o_.tune_seeds));
    }
    const size_t tries = o_.racers[0].candidates.size();
    for (const Racer& r : o_.racers) {
      rule_info(r.optimizer);  // throws what there is
      if (r.candidates.empty()) refuse(fmt::format("{} has nothing to try", r.name));
      if (r.candidates.size() == tries) continue;
      refuse(fmt::format("{} has {} trials and {} {}, expected the same number for each", r.name,
                         r.candidates.size(), o_.racers[0].name, tries));
    }
  }

  Entry entry(Entry::Stage stage, const Standing& s, size_t candidate, uint64_t seed) const {
    const Racer& racer = o_.racers[s.racer];
    const Workload& work = o_.workloads[s.workload];
    Entry e{stage, s.racer, s.workload, candidate, seed, o_.base};
    e.spec.model = work.model;
    e.spec.data = work.data;
    e.spec.optimizer = racer.optimizer;
    e.spec.state = racer.state;
    for (const Setting& setting : racer.candidates[candidate]) {
      if (rule_info(racer.optimizer).knob(setting.name) < 0) continue;
      std::erase_if(e.spec.hyper, [&](const auto& h) { return h.first == setting.name; });
      e.spec.hyper.emplace_back(setting.name, setting.value);
    }
    // Of parameters and of data, never the same two in two stages.
    e.spec.seed = seed;
    e.spec.data_seed = 1000 + seed;
    if (o_.goal == Goal::target) e.spec.target = o_.target;
    if (o_.goal == Goal::budget && stage != Entry::Stage::pace) {
      e.spec.steps = steps_.at({s.racer, s.workload});
    }
    return e;
  }

  uint64_t nth_seed(int64_t n) const { return o_.first_seed + static_cast<uint64_t>(n) - 1; }

  const TrialResult& result_of(const Entry& e) const { return done_.at(trial_hash(e.spec)); }

  bool run(const std::vector<Entry>& entries) {
    std::vector<Entry> once;  // a knob that a racer does not have makes several the same
    std::set<std::string> seen;
    for (const Entry& e : entries) {
      if (seen.insert(trial_hash(e.spec)).second) once.push_back(e);
    }
    if (!run_(once, done_)) return false;
    return std::all_of(entries.begin(), entries.end(),
                       [&](const Entry& e) { return done_.contains(trial_hash(e.spec)); });
  }

  // A schedule must end with the budget, so steps are counted before: as many as there is time for.
  bool find_paces(const std::vector<Standing>& standings) {
    std::vector<Entry> entries;
    for (const Standing& s : standings) {
      Entry e = entry(Entry::Stage::pace, s, 0, 0);
      e.spec.steps = kPaceSteps;
      e.spec.eval_every = 0;
      entries.push_back(std::move(e));
    }
    if (!run(entries)) return false;
    for (const Entry& e : entries) {
      const TrialResult& r = result_of(e);
      const double tokens = static_cast<double>(e.spec.batch * context_of(e.spec));
      const double steps = r.tokens_per_s > 0 ? o_.budget_s * r.tokens_per_s / tokens : 1;
      steps_[{e.racer, e.workload}] = std::max<int64_t>(1, static_cast<int64_t>(steps));
    }
    return true;
  }

  bool tune(std::vector<Standing>& standings) {
    const size_t tries = o_.racers[0].candidates.size();
    if (tries == 1) {
      for (Standing& s : standings) s.best = 0;
      return true;
    }
    std::vector<Entry> entries;
    // Seed by seed, so that all have been tried once before any is tried again.
    for (int64_t seed = 1; seed <= o_.tune_seeds; ++seed) {
      for (const Standing& s : standings) {
        for (size_t c = 0; c < tries; ++c) {
          entries.push_back(entry(Entry::Stage::tune, s, c, nth_seed(seed)));
        }
      }
    }
    if (!run(entries)) return false;
    for (Standing& s : standings) {
      for (const Entry& e : entries) {
        if (e.racer != s.racer || e.workload != s.workload) continue;
        s.tuned.push_back({e, result_of(e)});
        s.tuning_s += s.tuned.back().result.train_s;
      }
      choose(s);
    }
    return true;
  }

  // The lowest median over seeds. For a target that none reached, the lowest loss.
  void choose(Standing& s) const {
    const auto median = [&](size_t candidate, auto value) {
      std::vector<double> values;
      for (const Finished& f : s.tuned) {
        if (f.entry.candidate == candidate) values.push_back(value(f.result));
      }
      return bench::median_with_misses(values);
    };
    const auto best = [&](auto value) {
      double least = kInfinite;
      for (size_t c = 0; c < o_.racers[s.racer].candidates.size(); ++c) {
        const double m = median(c, value);
        if (m < least) least = m, s.best = c;
      }
    };
    best([&](const TrialResult& r) { return figure(o_, r); });
    if (!s.best) best([](const TrialResult& r) { return r.best_validation(); });
  }

  bool finish(std::vector<Standing>& standings) {
    std::vector<Entry> entries;
    for (int64_t i = 1; i <= o_.seeds; ++i) {
      const uint64_t seed = nth_seed(o_.tune_seeds + i);
      for (const Standing& s : standings) {
        if (s.best) entries.push_back(entry(Entry::Stage::final, s, *s.best, seed));
      }
    }
    if (!run(entries)) return false;
    for (Standing& s : standings) {
      for (const Entry& e : entries) {
        if (e.racer == s.racer && e.workload == s.workload) s.finals.push_back({e, result_of(e)});
      }
    }
    return true;
  }

  const RaceOptions& o_;
  const RunEntries& run_;
  std::map<std::string, TrialResult> done_;
  std::map<std::pair<size_t, size_t>, int64_t> steps_;  // by racer and workload, of a budget
};

}  // namespace

double figure(const RaceOptions& options, const TrialResult& result) {
  return options.goal == Goal::target ? result.time_to_target_s() : result.final_validation();
}

std::vector<double> figures(const RaceOptions& options, const Standing& standing) {
  std::vector<double> out;
  for (const Finished& f : standing.finals) out.push_back(figure(options, f.result));
  return out;
}

const char* figure_name(Goal goal) {
  return goal == Goal::target ? "time_to_target_s" : "validation_loss";
}

std::string settings_text(const Settings& settings) {
  std::vector<std::string> parts;
  parts.reserve(settings.size());
  for (const Setting& s : settings) parts.push_back(fmt::format("{}={}", s.name, brief(s.value)));
  return fmt::format("{}", fmt::join(parts, " "));
}

RaceResult run_race(const RaceOptions& options, const RunEntries& run) {
  return Race(options, run).go();
}

}  // namespace gallop::lab
