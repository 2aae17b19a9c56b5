// SPDX-License-Identifier: MIT
#include "lab/race_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/compare.h"
#include "lab/scores.h"

namespace gallop::lab {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// "3 reached, 1 missed", or nothing where all went well.
std::string ends_of(const Standing& s) {
  std::vector<TrialEnd> ends;
  ends.reserve(s.finals.size());
  for (const Finished& f : s.finals) ends.push_back(f.result.end);
  return ends.empty() ? "nothing worked" : count_ends(ends);
}

template <class F>
Value median_of(const Standing& s, F value) {
  std::vector<double> values;
  for (const Finished& f : s.finals) values.push_back(value(f.result));
  return values.empty() ? Value() : Value(bench::median_with_misses(values));
}

Value accuracy_of(const Standing& s) {
  const bool known = std::none_of(s.finals.begin(), s.finals.end(), [](const Finished& f) {
    return std::isnan(f.result.final_accuracy());
  });
  if (!known) return {};
  return median_of(s, [](const TrialResult& r) { return r.final_accuracy(); });
}

struct Spikes {
  int64_t count = 0;
  double worst = 0;
};

Spikes spikes_of(const std::vector<Finished>& runs) {
  Spikes out;
  for (const Finished& f : runs) {
    out.count += f.result.spikes;
    out.worst = std::max(out.worst, f.result.worst_spike);
  }
  return out;
}

Row row_of(const RaceOptions& o, const Standing& s, const Standing& base, double wins) {
  const Racer& racer = o.racers[s.racer];
  const std::vector<double> mine = figures(o, s), theirs = figures(o, base);
  Row row;
  row.set("workload", o.workloads[s.workload].name).set("optimizer", racer.name);
  row.set("steps", o.base.steps).set("batch", o.base.batch).set("precision", o.base.precision);
  if (o.base.min_length > 0) row.set("min_length", o.base.min_length);
  row.set("device", o.base.device.substr(0, o.base.device.find(':'))).end_config();
  row.set("best", s.best ? settings_text(racer.candidates[*s.best]) : "");
  const std::string name = figure_name(o.goal);
  row.set(name, median_of(s, [&](const TrialResult& r) { return figure(o, r); }));
  if (!mine.empty()) {
    const bench::Interval i = bench::bootstrap_interval(mine, bench::median_with_misses);
    row.set("low", std::max(0.0, i.low)).set("high", i.high).keep_samples(name, mine);
  }
  if (&s != &base && !mine.empty() && !theirs.empty()) {
    const bench::Verdict v = bench::compare(theirs, mine);
    // To a median that is a miss there is none.
    const bool both = std::isfinite(bench::median_with_misses(theirs));
    row.set("ratio", both ? Value(v.ratio) : Value());
    row.set("ratio_low", v.interval.low).set("ratio_high", v.interval.high);
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
  row.set("accuracy", accuracy_of(s));
  row.set("train_s", median_of(s, [](const TrialResult& r) { return r.train_s; }));
  row.set("tokens_per_s", median_of(s, [](const TrialResult& r) { return r.tokens_per_s; }));
  row.set("memory_mb", median_of(s, [](const TrialResult& r) { return r.memory_mb; }));
  if (!s.finals.empty()) set_classes(row, s.finals[0].result);
  const Spikes spikes = spikes_of(s.finals);
  row.set("spikes", spikes.count).set("worst_spike", spikes.worst);
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

// Only where there are some.
void add_spikes(Table& table, const RaceResult& result) {
  const bool any = std::any_of(result.standings.begin(), result.standings.end(),
                               [](const Standing& s) { return spikes_of(s.finals).count > 0; });
  if (!any) return;
  table.columns.insert(table.columns.end() - 1, {"spikes", "worst_spike"});
  table.notes.emplace_back(
      "spikes: sudden rises of the training loss in all these runs, by more than 8 of its usual "
      "deviations; worst_spike: how far it rose");
}

}  // namespace

std::string race_title(const RaceOptions& o) {
  const std::string where = o.workloads.size() == 1
                                ? o.workloads[0].name
                                : fmt::format("{} workloads", o.workloads.size());
  return fmt::format("Race on {}: {}", where, goal_text(o));
}

Table leaderboard(const RaceOptions& o, const RaceResult& result) {
  Table table;
  table.title = race_title(o);
  table.notes = read_race(o, result);
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
  for (const char* name : {"optimizer", "best", figure_name(o.goal), "low", "high", "ratio",
                           "ratio_low", "ratio_high", "verdict", "win_probability", "perplexity",
                           "accuracy", "tokens_per_s", "memory_mb", "tuning_s", "outcome"}) {
    table.columns.emplace_back(name);
  }
  add_spikes(table, result);
  table.notes.push_back(fmt::format(
      "medians over {} seed{} that tuning has not seen; low and high bound them, and the ratio to "
      "{}, with 95 % confidence (bootstrap over seeds); a miss counts as infinite",
      o.seeds, o.seeds == 1 ? "" : "s", o.racers[0].name));
  const size_t tries = o.racers[0].candidates.size();
  if (tries > 1) {
    table.notes.push_back(fmt::format(
        "each was tuned by the same number of trials, {} with {} seed{} each, and the best by its "
        "median ran again; tuning_s is what that took",
        tries, o.tune_seeds, o.tune_seeds == 1 ? "" : "s"));
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

Row trial_row(const RaceOptions& o, const Entry& entry, const TrialResult& result) {
  const Racer& racer = o.racers[entry.racer];
  const TrialSpec& spec = entry.spec;
  Row row;
  row.set("stage", entry.stage == Entry::Stage::final ? "final" : "tuning");
  row.set("workload", o.workloads[entry.workload].name);
  row.set("optimizer", racer.name);
  for (const auto& [name, value] : spec.hyper) row.set(name, value);
  row.set("steps", spec.steps).set("batch", spec.batch).set("precision", spec.precision);
  if (spec.min_length > 0) row.set("min_length", spec.min_length);
  row.set("device", spec.device.substr(0, spec.device.find(':'))).end_config();
  row.set("seed", entry.seed).set("outcome", to_string(result.end));
  if (!result.message.empty()) row.set("message", result.message);
  row.set("validation_loss", result.final_validation());
  const double accuracy_at_end = result.final_accuracy();
  row.set("accuracy", std::isnan(accuracy_at_end) ? Value() : Value(accuracy_at_end));
  if (spec.target) {
    row.set("target", *spec.target).set("time_to_target_s", result.time_to_target_s());
    row.set("steps_to_target", result.steps_to_target());
  }
  row.set("train_s", result.train_s)
      .set("prepare_s", result.prepare_s)
      .set("evaluate_s", result.evaluate_s);
  row.set("tokens_per_s", result.tokens_per_s).set("memory_mb", result.memory_mb);
  row.set("spikes", result.spikes).set("worst_spike", result.worst_spike);
  std::vector<double> step, seconds, loss, validation, accuracy;
  for (const TrialPoint& p : result.points) {
    step.push_back(static_cast<double>(p.step));
    seconds.push_back(p.train_s);
    loss.push_back(p.loss);
    validation.push_back(p.validation);
    accuracy.push_back(p.accuracy);
  }
  row.keep_samples("curve_step", step).keep_samples("curve_s", seconds);
  row.keep_samples("curve_loss", loss).keep_samples("curve_validation", validation);
  row.keep_samples("curve_accuracy", accuracy);
  return row;
}

std::vector<Row> trial_rows(const RaceOptions& o, const RaceResult& result) {
  std::vector<Row> rows;
  for (const Standing& s : result.standings) {
    for (const auto* stage : {&s.tuned, &s.finals}) {
      for (const Finished& f : *stage) rows.push_back(trial_row(o, f.entry, f.result));
    }
  }
  return rows;
}

}  // namespace gallop::lab
