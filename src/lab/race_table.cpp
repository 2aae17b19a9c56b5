// SPDX-License-Identifier: MIT
#include "lab/race_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "bench/compare.h"
#include "lab/scores.h"

namespace gallop::lab {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

std::vector<double> figures(const RaceOptions& o, const Standing& s) {
  std::vector<double> out;
  for (const Finished& f : s.finals) out.push_back(figure(o, f.result));
  return out;
}

// "3 reached, 1 missed", or nothing where all went well.
std::string ends_of(const Standing& s) {
  std::map<TrialEnd, int> count;
  for (const Finished& f : s.finals) ++count[f.result.end];
  std::vector<std::string> parts;
  parts.reserve(count.size());
  for (const auto& [end, n] : count) parts.push_back(fmt::format("{} {}", n, to_string(end)));
  return parts.empty() ? "nothing worked" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string settings_of(const Racer& racer, const Standing& s) {
  if (!s.best) return "";
  std::vector<std::string> parts;
  for (const Setting& setting : racer.candidates[*s.best]) {
    parts.push_back(fmt::format("{}={}", setting.name, brief(setting.value)));
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

template <class F>
Value median_of(const Standing& s, F value) {
  std::vector<double> values;
  for (const Finished& f : s.finals) values.push_back(value(f.result));
  return values.empty() ? Value() : Value(bench::median_with_misses(values));
}

const char* name_of(Goal goal) {
  return goal == Goal::target ? "time_to_target_s" : "validation_loss";
}

Row row_of(const RaceOptions& o, const Standing& s, const Standing& base, double wins) {
  const Racer& racer = o.racers[s.racer];
  const std::vector<double> mine = figures(o, s), theirs = figures(o, base);
  Row row;
  row.set("workload", o.workloads[s.workload].name).set("optimizer", racer.name);
  row.set("steps", o.base.steps).set("batch", o.base.batch).set("precision", o.base.precision);
  row.set("device", o.base.device.substr(0, o.base.device.find(':'))).end_config();
  row.set("best", settings_of(racer, s));
  const std::string name = name_of(o.goal);
  row.set(name, median_of(s, [&](const TrialResult& r) { return figure(o, r); }));
  if (!mine.empty()) {
    const bench::Interval i = bench::bootstrap_interval(mine, bench::median_with_misses);
    row.set("low", std::max(0.0, i.low)).set("high", i.high).keep_samples(name, mine);
  }
  if (&s != &base && !mine.empty() && !theirs.empty()) {
    const bench::Verdict v = bench::compare(theirs, mine);
    row.set("ratio", v.ratio).set("ratio_low", v.interval.low).set("ratio_high", v.interval.high);
    row.set("verdict", v.verdict == bench::Finding::less      ? "better"
                       : v.verdict == bench::Finding::greater ? "worse"
                       : v.too_few                            ? "too few runs to tell"
                                                              : "no difference seen");
  }
  row.set("win_probability", wins);
  row.set("steps_taken",
          median_of(s, [](const TrialResult& r) { return static_cast<double>(r.steps); }));
  row.set("final_loss", median_of(s, [](const TrialResult& r) { return r.final_validation(); }));
  row.set("perplexity",
          median_of(s, [](const TrialResult& r) { return std::exp(r.final_validation()); }));
  row.set("train_s", median_of(s, [](const TrialResult& r) { return r.train_s; }));
  row.set("tokens_per_s", median_of(s, [](const TrialResult& r) { return r.tokens_per_s; }));
  row.set("memory_mb", median_of(s, [](const TrialResult& r) { return r.memory_mb; }));
  row.set("trials", racer.candidates.size()).set("tuning_s", s.tuning_s).set("outcome", ends_of(s));
  return row;
}

std::string goal_text(const RaceOptions& o) {
  switch (o.goal) {
    case Goal::target:
      return fmt::format("seconds of training to a validation loss of {}", o.target);
    case Goal::budget:
      return fmt::format("validation loss after {:.4g} s of training", o.budget_s);
    case Goal::loss:
      break;
  }
  return fmt::format("validation loss after {} steps", o.base.steps);
}

// Those whose best candidate is at an end of what was tried: there may be better ones beyond.
std::vector<std::string> at_an_end(const RaceOptions& o, const RaceResult& result) {
  std::vector<std::string> out;
  for (const Standing& s : result.standings) {
    const Racer& racer = o.racers[s.racer];
    if (!s.best || racer.candidates.size() < 2) continue;
    for (const Setting& chosen : racer.candidates[*s.best]) {
      double low = kInfinite, high = -kInfinite;
      for (const Settings& candidate : racer.candidates) {
        for (const Setting& other : candidate) {
          if (other.name != chosen.name) continue;
          low = std::min(low, other.value), high = std::max(high, other.value);
        }
      }
      if (!(low < high) || (chosen.value != low && chosen.value != high)) continue;
      out.push_back(fmt::format("{} {}={}", racer.name, chosen.name, brief(chosen.value)));
    }
  }
  return out;
}

}  // namespace

Table leaderboard(const RaceOptions& o, const RaceResult& result) {
  Table table;
  table.title = fmt::format("Race: {}", goal_text(o));
  for (size_t w = 0; w < o.workloads.size(); ++w) {
    std::vector<const Standing*> here;
    std::vector<std::vector<double>> values;
    for (const Standing& s : result.standings) {
      if (s.workload != w) continue;
      here.push_back(&s);
      values.push_back(figures(o, s));
      if (values.back().empty()) values.back().push_back(std::nan(""));  // nothing worked: lost
    }
    const std::vector<double> wins = win_probabilities(values);
    std::vector<std::pair<double, Row>> rows;
    for (size_t i = 0; i < here.size(); ++i) {
      const double middle =
          here[i]->finals.empty() ? kInfinite : bench::median_with_misses(values[i]);
      rows.emplace_back(middle, row_of(o, *here[i], *here[0], wins[i]));
    }
    std::stable_sort(rows.begin(), rows.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [middle, row] : rows) table.rows.push_back(std::move(row));
  }
  if (o.workloads.size() > 1) table.columns.emplace_back("workload");
  for (const char* name :
       {"optimizer", "best", name_of(o.goal), "low", "high", "ratio", "ratio_low", "ratio_high",
        "verdict", "win_probability", "tokens_per_s", "memory_mb", "tuning_s", "outcome"}) {
    table.columns.emplace_back(name);
  }
  table.notes.push_back(fmt::format(
      "medians over {} seeds that tuning has not seen; low and high bound them, and the ratio to "
      "{}, with 95 % confidence (bootstrap over seeds); a miss counts as infinite",
      o.seeds, o.racers[0].name));
  const size_t tries = o.racers[0].candidates.size();
  if (tries > 1) {
    table.notes.push_back(fmt::format(
        "each was tuned by the same number of trials, {} with {} seeds each, and the best by its "
        "median ran again; tuning_s is what that took",
        tries, o.tune_seeds));
  } else {
    table.notes.emplace_back("nothing was tuned: another learning rate may turn the order round");
  }
  for (const Standing& s : result.standings) {
    if (s.best || s.tuned.empty()) continue;
    const TrialResult& first = s.tuned.front().result;
    table.notes.push_back(fmt::format("{}: nothing worked; {}{}{}", o.racers[s.racer].name,
                                      to_string(first.end), first.message.empty() ? "" : ": ",
                                      first.message));
  }
  if (const std::vector<std::string> ends = at_an_end(o, result); !ends.empty()) {
    table.notes.push_back(fmt::format(
        "best at an end of what was tried, so that --tune beyond it may find better: {}",
        fmt::join(ends, ", ")));
  }
  return table;
}

Table profiles(const RaceOptions& o, const RaceResult& result) {
  Table table;
  if (o.workloads.size() < 2 || o.goal != Goal::target) return table;
  std::vector<Outcome> outcomes;
  for (const Standing& s : result.standings) {
    for (const Finished& f : s.finals) {
      outcomes.push_back({o.racers[s.racer].name, o.workloads[s.workload].name, f.entry.seed,
                          f.result.time_to_target_s()});
    }
  }
  table.title = fmt::format("Over {} workloads", o.workloads.size());
  for (const Profile& p : performance_profiles(outcomes)) {
    Row row;
    row.set("optimizer", p.contender).end_config().set("score", p.score);
    for (const double tau : {1.0, 1.1, 1.5, 2.0, 4.0}) {
      row.set(fmt::format("within_{}x", tau), p.share_within(tau));
    }
    table.rows.push_back(std::move(row));
  }
  table.notes.emplace_back(
      "within_Nx: the share of workloads on which it takes at most N times as long as the fastest; "
      "score: the mean of that for N from 1 to 4");
  return table;
}

std::vector<Row> trial_rows(const RaceOptions& o, const RaceResult& result) {
  std::vector<Row> rows;
  const auto add = [&](const Finished& f, const char* stage) {
    const Racer& racer = o.racers[f.entry.racer];
    const TrialSpec& spec = f.entry.spec;
    Row row;
    row.set("stage", stage).set("workload", o.workloads[f.entry.workload].name);
    row.set("optimizer", racer.name);
    for (const auto& [name, value] : spec.hyper) row.set(name, value);
    row.set("steps", spec.steps).set("batch", spec.batch).set("precision", spec.precision);
    row.set("device", spec.device.substr(0, spec.device.find(':'))).end_config();
    row.set("seed", f.entry.seed).set("outcome", to_string(f.result.end));
    if (!f.result.message.empty()) row.set("message", f.result.message);
    row.set("validation_loss", f.result.final_validation());
    if (spec.target) {
      row.set("target", *spec.target).set("time_to_target_s", f.result.time_to_target_s());
      row.set("steps_to_target", f.result.steps_to_target());
    }
    row.set("train_s", f.result.train_s)
        .set("prepare_s", f.result.prepare_s)
        .set("evaluate_s", f.result.evaluate_s);
    row.set("tokens_per_s", f.result.tokens_per_s).set("memory_mb", f.result.memory_mb);
    std::vector<double> step, seconds, loss, validation;
    for (const TrialPoint& p : f.result.points) {
      step.push_back(static_cast<double>(p.step));
      seconds.push_back(p.train_s);
      loss.push_back(p.loss);
      validation.push_back(p.validation);
    }
    row.keep_samples("curve_step", step).keep_samples("curve_s", seconds);
    row.keep_samples("curve_loss", loss).keep_samples("curve_validation", validation);
    rows.push_back(std::move(row));
  };
  for (const Standing& s : result.standings) {
    for (const Finished& f : s.tuned) add(f, "tuning");
    for (const Finished& f : s.finals) add(f, "final");
  }
  return rows;
}

}  // namespace gallop::lab
