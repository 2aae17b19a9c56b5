// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/statistics.h"
#include "gpt/arena.h"
#include "lab/profile_numbers.h"

namespace gallop::lab {
namespace {

bool on_gpu(const ProfileOptions& o) { return o.base.device.starts_with("cuda"); }

Row config_of(const ProfileOptions& o, size_t contender) {
  const TrialSpec& s = o.base;
  Row row;
  row.set("optimizer", o.contenders[contender].optimizer);
  row.set("state", o.contenders[contender].state).set("model", s.model).set("data", s.data);
  row.set("context", context_of(s)).set("batch", s.batch);
  if (s.min_length > 0) row.set("min_length", s.min_length);
  row.set("precision", s.precision);
  if (s.threads > 0) row.set("threads", s.threads);
  row.set("steps", s.steps).set("device", s.device.substr(0, s.device.find(':')));
  return row;
}

const char* word_of(const Change& c) {
  switch (c.claim) {
    case Claim::less:
      return "slower";
    case Claim::greater:
      return "faster";
    case Claim::too_few:
      return "too few repeats";
    case Claim::not_seen:
      break;
  }
  return "no difference seen";
}

std::string outcome(const std::vector<ProfileRun>& runs, size_t contender) {
  std::vector<TrialEnd> ends;
  for (const ProfileRun& r : runs) {
    if (r.contender == contender) ends.push_back(r.result.end);
  }
  return count_ends(ends);
}

void add_changes(Row& row, const ProfileNumbers& numbers, size_t contender) {
  for (const ProfileFigure& f : profile_figures()) {
    const std::optional<Change> c = numbers.next_to_baseline(f, contender);
    if (!c) continue;
    const auto percent = [&](const char* part, double ratio) {
      if (std::isfinite(ratio)) row.set(f.name + part, 100 * (ratio - 1));
    };
    percent("_change_percent", c->ratio);
    if (f.exact) continue;
    percent("_change_low_percent", c->interval.low);
    percent("_change_high_percent", c->interval.high);
    percent("_noise_percent", 1 + c->band);
  }
}

Row summary_row(const ProfileOptions& o, const std::vector<ProfileRun>& runs,
                const ProfileNumbers& numbers, size_t contender) {
  Row row = config_of(o, contender);
  row.set("repeats", o.repeats).end_config();
  row.set("baseline", o.contenders[o.baseline].name).set("outcome", outcome(runs, contender));
  for (const ProfileFigure& f : profile_figures()) {
    const std::vector<double>& values = numbers.of(f, contender);
    if (values.empty()) continue;
    row.set(f.name, bench::median(values));
    row.keep_samples(f.name, values);
    if (f.name != "tokens_per_s" || values.size() < 2) continue;
    const bench::Interval i = bench::bootstrap_interval(values, bench::median_with_misses);
    row.set("low", i.low).set("high", i.high);
  }
  for (const ProfileRun& r : runs) {
    if (r.contender != contender || r.result.end != TrialEnd::finished) continue;
    set_classes(row, r.result);
    break;
  }
  if (contender == o.baseline) return row;
  add_changes(row, numbers, contender);
  const auto speed = numbers.next_to_baseline(profile_figure("tokens_per_s"), contender);
  if (speed) row.set("verdict", word_of(*speed));
  return row;
}

// "+4.5 [+3.1, +12]*"
std::string cell(const Change& c, bool exact) {
  const auto end = [](double ratio) {
    const double percent = 100 * (ratio - 1);
    return fmt::format("{:+.{}f}", percent, std::abs(percent) < 10 ? 1 : 0);
  };
  std::string text = fmt::format("{:+.1f}", 100 * (c.ratio - 1));
  if (!exact && std::isfinite(c.interval.high)) {
    text += fmt::format(" [{}, {}]", end(c.interval.low), end(c.interval.high));
  }
  if (c.claim == Claim::less || c.claim == Claim::greater) text += '*';
  return text;
}

Table relative(const ProfileOptions& o, const ProfileNumbers& numbers, const Table& summary) {
  Table table;
  table.title = fmt::format("Difference to {}, %", o.contenders[o.baseline].name);
  for (size_t i = 0; i < o.contenders.size(); ++i) {
    if (i == o.baseline) continue;
    Row row;
    row.set("optimizer", o.contenders[i].optimizer).set("state", o.contenders[i].state);
    for (const ProfileFigure& f : profile_figures()) {
      if (numbers.of(f, o.baseline).empty() || (f.name == "cpu_util" && on_gpu(o))) continue;
      const auto change = numbers.next_to_baseline(f, i);
      row.set(f.name, change ? Value(cell(*change, f.exact)) : Value());
    }
    const Value* verdict = summary.rows[i].find("verdict");
    const bool finished = !numbers.of(profile_figure("total_s"), i).empty();
    row.set("verdict", verdict != nullptr ? *verdict
                       : finished         ? Value("no baseline")
                                          : *summary.rows[i].find("outcome"));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::vector<Row> profile_run_rows(const ProfileOptions& o, const std::vector<ProfileRun>& runs) {
  std::vector<Row> rows;
  rows.reserve(runs.size());
  for (const ProfileRun& r : runs) {
    Row row = config_of(o, r.contender);
    row.end_config();
    row.set("repeat", r.repeat + 1).set("seed", r.spec.seed);
    row.set("outcome", to_string(r.result.end));
    if (!r.result.message.empty()) row.set("message", r.result.message);
    for (const ProfileFigure& f : profile_figures()) {
      const auto value = f.of(r.spec, r.result);
      if (value) row.set(f.name, *value);
    }
    if (r.result.usage) {
      row.set("open_s", r.result.usage->open_s).set("data_wait_s", r.result.data_wait_s);
      set_classes(row, r.result);
      if (!r.result.usage->step_s.empty()) {
        row.set("step_ms", 1e3 * r.result.usage->later_step_s());
      }
      std::vector<double> ms = r.result.usage->step_s;
      for (double& x : ms) x *= 1e3;
      row.keep_samples("step_ms", std::move(ms));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Table profile_summary(const ProfileOptions& o, const std::vector<ProfileRun>& runs) {
  const ProfileNumbers numbers(o, runs);
  const TrialSpec& s = o.base;
  Table table;
  const std::string lengths =
      s.min_length > 0 ? fmt::format("{} to {} tokens, padded", s.min_length, context_of(s))
                       : fmt::format("{} tokens", context_of(s));
  table.title = fmt::format(
      "Profile: {} on {}, batch of {} x {}, {}, {} steps, {}; medians of {} run{}", s.model, s.data,
      s.batch, lengths, s.precision, s.steps, s.device, o.repeats, o.repeats == 1 ? "" : "s");
  for (size_t i = 0; i < o.contenders.size(); ++i) {
    table.rows.push_back(summary_row(o, runs, numbers, i));
  }
  table.columns = {
      "optimizer", "state",        "data_s",       "prepare_s", on_gpu(o) ? "gpu_util" : "cpu_util",
      "host_mb",   "device_mb",    "tokens_per_s", "low",       "high",
      "total_s",   "warm_total_s", "outcome"};
  table.notes = read_profile(o, runs);
  return table;
}

std::vector<Table> profile_tables(const ProfileOptions& o, const std::vector<ProfileRun>& runs) {
  Table figures = profile_summary(o, runs);
  const ProfileNumbers numbers(o, runs);
  std::vector<std::string> reading = std::move(figures.notes);
  figures.notes = {
      "data_s: making batches, beside the steps; prepare_s: all before the first step, and what "
      "the first two take more than later ones, files being in the system's caches; warm_total_s: "
      "total_s without it",
      "host_mb: most that was resident; device_mb: at a step's highest point; util in %, in steps "
      "after the first two; low and high: where the median of tokens_per_s lies, 95 %"};
  if (o.base.min_length > 0) {
    figures.notes.emplace_back("tokens_per_s counts padding too: it takes as long as tokens do");
  }
  if (on_gpu(o) && numbers.of(profile_figure("gpu_util"), o.baseline).empty()) {
    figures.notes.emplace_back("gpu_util: not known; NVML needs a second of steps: more --steps");
  }
  Table memory;
  memory.title = "Memory at a step's highest point";
  memory.rows = figures.rows;
  memory.columns = {"optimizer", "state", "device_mb"};
  for (int c = 0; c < gpt::kMemoryClasses; ++c) {
    memory.columns.push_back(class_field(to_string(static_cast<gpt::MemoryClass>(c))));
  }
  if (on_gpu(o)) {
    memory.columns.emplace_back("driver_mb");
    memory.notes = {
        "driver_mb: of the process, as the GPU's driver counts it, with context and "
        "libraries"};
  }
  Table changes = relative(o, numbers, figures);
  std::vector<Table> tables = {std::move(figures), std::move(memory)};
  if (!changes.rows.empty()) tables.push_back(std::move(changes));
  for (std::string& line : reading) tables.back().notes.push_back(std::move(line));
  return tables;
}

}  // namespace gallop::lab
