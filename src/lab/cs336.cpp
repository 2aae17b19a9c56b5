// SPDX-License-Identifier: MIT
#include "lab/cs336.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "lab/figures.h"
#include "lab/progress.h"
#include "lab/signals.h"

namespace gallop::lab {
namespace {

using bench::TrainCase;

bool ok(const Row& row) { return text(row, "status") == "ok"; }

struct Range {
  double least = std::numeric_limits<double>::infinity(), most = 0, logs = 0;
  int count = 0;
  void add(double x) {
    least = std::min(least, x);
    most = std::max(most, x);
    logs += std::log(x);
    ++count;
  }
  double mean() const { return std::exp(logs / count); }
};

// "1.50 to 2.25", or one number where both are the same in as many digits.
std::string span(const Range& r, int decimals) {
  const std::string least = fmt::format("{:.{}f}", r.least, decimals);
  const std::string most = fmt::format("{:.{}f}", r.most, decimals);
  return least == most ? least : fmt::format("{} to {}", least, most);
}

using Group = std::map<std::string, const Row*>;

// Rows that agree in all but one axis, by the value they have there.
std::vector<Group> groups(const std::vector<Row>& rows, std::string_view axis) {
  std::map<std::string, size_t> numbers;
  std::vector<Group> out;
  for (const Row& row : rows) {
    if (!ok(row)) continue;
    std::string key;
    for (const char* a :
         {"model", "context", "batch", "precision", "mode", "optimizer", "warmup"}) {
      if (a != axis) key += text(row, a) + "|";
    }
    const auto [at, first] = numbers.emplace(key, out.size());
    if (first) out.emplace_back();
    out[at->second][text(row, axis)] = &row;
  }
  std::erase_if(out, [](const Group& group) { return group.size() < 2; });
  return out;
}

void compare(const std::vector<Row>& rows, std::string_view axis, const std::string& other,
             const std::string& base, std::vector<std::string>& notes) {
  Range range;
  int faster = 0, slower = 0;
  for (const Group& group : groups(rows, axis)) {
    const auto a = group.find(other), b = group.find(base);
    if (a == group.end() || b == group.end()) continue;
    const double ratio = *number(*b->second, "total_ms") / *number(*a->second, "total_ms");
    range.add(ratio);
    if (std::abs(ratio - 1) <= std::hypot(noise(*a->second), noise(*b->second))) continue;
    ++(ratio > 1 ? faster : slower);
  }
  if (range.count == 0) return;
  notes.push_back(fmt::format(
      "{} is {:.2f}x to {:.2f}x as fast as {}, {:.2f}x in the geometric mean; beyond the noise "
      "faster in {} and slower in {} of {} pairs",
      other, range.least, range.most, base, range.mean(), faster, slower, range.count));
}

std::vector<int64_t> contexts_of(const std::vector<int64_t>& wanted, int64_t most) {
  std::vector<int64_t> out;
  std::copy_if(wanted.begin(), wanted.end(), std::back_inserter(out),
               [&](int64_t c) { return c <= most; });
  if (out.empty()) out.push_back(most);
  return out;
}

std::vector<TrainCase> time_cases(const Cs336Options& o) {
  std::vector<TrainCase> cases;
  for (const std::string& model : o.axes.models) {
    bench::TrainAxes axes = o.axes;
    axes.models = {model};
    axes.contexts = contexts_of(o.axes.contexts, gpt::parse_model(model).context);
    for (TrainCase& c : bench::train_cases(axes)) cases.push_back(std::move(c));
  }
  return cases;
}

// One way to run each model, with every warm-up.
std::vector<TrainCase> warmup_cases(const Cs336Options& o) {
  std::vector<TrainCase> cases;
  if (o.warmups.empty()) return cases;
  for (const std::string& model : o.axes.models) {
    bench::TrainAxes axes = o.axes;
    axes.models = {model};
    axes.contexts = {std::min(o.warmup_context, gpt::parse_model(model).context)};
    axes.warmups = o.warmups;
    for (auto* names : {&axes.precisions, &axes.modes, &axes.optimizers}) names->resize(1);
    for (TrainCase& c : bench::train_cases(axes)) cases.push_back(std::move(c));
  }
  return cases;
}

void show(Table& table, const std::vector<const char*>& figures) {
  if (!table.rows.empty()) table.columns = bench::varied(table.rows);
  for (const char* f : figures) table.columns.emplace_back(f);
  table.columns.emplace_back("status");
}

constexpr const char* kMemory[] = {"parameters_mb", "gradients_mb", "state_mb", "activations_mb",
                                   "logits_mb",     "workspace_mb", "peak_mb"};

}  // namespace

Cs336Options::Cs336Options() {
  axes.models = {"S", "M", "L", "XL", "2p7"};
  axes.contexts = {128, 256, 512, 1024};
  axes.precisions = {"fp32", "bf16"};
  axes.modes = {"eager", "compiled"};
  axes.optimizers = {"none", "adamw"};
}

std::vector<std::string> read_times(const std::vector<Row>& rows) {
  std::vector<std::string> notes;
  compare(rows, "precision", "bf16", "fp32", notes);
  compare(rows, "precision", "tf32", "fp32", notes);
  compare(rows, "precision", "fp16", "fp32", notes);
  compare(rows, "mode", "compiled", "eager", notes);
  std::map<std::string, Range> share;  // percent of a step, by optimizer
  Range backward;
  for (const Row& row : rows) {
    if (!ok(row)) continue;
    backward.add(*number(row, "backward_ms") / *number(row, "forward_ms"));
    if (text(row, "optimizer") == "none") continue;
    share[text(row, "optimizer")].add(100 * *number(row, "optimizer_ms") /
                                      *number(row, "total_ms"));
  }
  for (const auto& [optimizer, percent] : share) {
    notes.push_back(fmt::format("{} takes {} % of a step's time", optimizer, span(percent, 1)));
  }
  if (backward.count > 0) {
    notes.push_back(fmt::format("backward takes {} times as long as forward", span(backward, 2)));
  }
  return notes;
}

std::vector<std::string> read_warmup(const std::vector<Row>& rows) {
  std::vector<std::string> notes;
  for (const Group& group : groups(rows, "warmup")) {
    const auto most =
        std::max_element(group.begin(), group.end(), [](const auto& a, const auto& b) {
          return *number(*a.second, "warmup") < *number(*b.second, "warmup");
        });
    const Row& warm = *most->second;
    for (const auto& [warmup, row] : group) {
      if (row == &warm) continue;
      const double change = 100 * (*number(*row, "total_ms") / *number(warm, "total_ms") - 1);
      notes.push_back(fmt::format(
          "{}: {} instead of {} steps of warm-up change the mean of a step by {:+.1f} % (noise: "
          "{:.1f} %), its standard deviation from {:.3g} to {:.3g} ms",
          text(warm, "model"), warmup == "0" ? "no" : warmup, most->first, change,
          100 * std::hypot(noise(*row), noise(warm)), *number(warm, "total_std_ms"),
          *number(*row, "total_std_ms")));
    }
  }
  return notes;
}

std::vector<std::string> read_memory(const std::vector<Row>& rows) {
  std::vector<std::string> notes;
  std::map<std::string, Range> added, bytes;
  for (const Group& group : groups(rows, "optimizer")) {
    const auto none = group.find("none");
    if (none == group.end()) continue;
    for (const auto& [optimizer, row] : group) {
      if (optimizer == "none") continue;
      const double mb = *number(*row, "peak_mb") - *number(*none->second, "peak_mb");
      added[optimizer].add(100 * mb / *number(*none->second, "peak_mb"));
      bytes[optimizer].add(*number(*row, "state_mb") * (1 << 20) / *number(*row, "parameters"));
    }
  }
  notes.reserve(added.size() + 1);
  for (const auto& [optimizer, percent] : added) {
    notes.push_back(
        fmt::format("{} adds {} % to the peak without it: {} bytes of state a parameter", optimizer,
                    span(percent, 0), span(bytes[optimizer], 2)));
  }
  // By how often the context was doubled, so that models with different ones compare.
  Range growth;
  for (const Group& group : groups(rows, "context")) {
    const auto by_context = [](const auto& a, const auto& b) {
      return *number(*a.second, "context") < *number(*b.second, "context");
    };
    const auto ends = std::minmax_element(group.begin(), group.end(), by_context);
    const auto ratio = [&](const char* name) {
      return *number(*ends.second->second, name) / *number(*ends.first->second, name);
    };
    growth.add(std::pow(2, std::log(ratio("activations_mb")) / std::log(ratio("context"))));
  }
  if (growth.count > 0) {
    notes.push_back(fmt::format("activations at the peak grow {} times when the context doubles",
                                span(growth, 2)));
  }
  Range share;
  for (const Group& group : groups(rows, "precision")) {
    const auto a = group.find("bf16"), b = group.find("fp32");
    if (a == group.end() || b == group.end()) continue;
    share.add(*number(*a->second, "peak_mb") / *number(*b->second, "peak_mb"));
  }
  if (share.count > 0) {
    notes.push_back(fmt::format("bf16 takes {} of fp32's memory", span(share, 2)));
  }
  return notes;
}

std::vector<Table> cs336(const Cs336Options& o) {
  const std::vector<TrainCase> times = time_cases(o), warmups = warmup_cases(o);
  bench::TrainBench bench(o.timing);
  Progress progress("suite cs336", static_cast<int64_t>(times.size() + warmups.size()));
  const auto run = [&](const TrainCase& c) {
    Row row = bench.run(c);
    progress.advance(1, fmt::format("{}, context {}", c.model, c.options.time));
    return row;
  };
  std::vector<Table> tables(3);
  tables[0].title = fmt::format("CS336 end to end, batch {}, {}", fmt::join(o.axes.batches, ", "),
                                to_string(o.axes.device));
  if (!warmups.empty()) {
    const gpt::TrainerOptions& how = warmups[0].options;
    tables[1].title =
        fmt::format("CS336 warm-up, {}, {}, optimizer {}, context {} where models have it",
                    gpt::to_string(how.compute), how.compiled ? "compiled" : "eager", how.optimizer,
                    o.warmup_context);
  }
  tables[2].title = "CS336 memory at the highest point of a step";
  for (const TrainCase& c : times) {
    if (Signals::asked()) break;
    const Row row = run(c);
    tables[0].rows.push_back(row.in_front("part", "end to end"));
    const auto& wanted = o.memory_contexts;
    if (std::find(wanted.begin(), wanted.end(), c.options.time) == wanted.end()) continue;
    if (!ok(row) && text(row, "status") != "oom") continue;
    Row memory;
    memory.set("part", "memory");
    size_t at = 0;
    for (const auto& [name, value] : row) {
      if (at++ == row.config_size()) memory.end_config();
      const bool time = name.ends_with("_ms") || name.ends_with("_s") || name == "mfu_percent";
      if (!time) memory.set(name, value);
    }
    tables[2].rows.push_back(std::move(memory));
  }
  for (const TrainCase& c : warmups) {
    if (Signals::asked()) break;
    tables[1].rows.push_back(run(c).in_front("part", "warm-up"));
  }
  const std::vector<const char*> spread = {"forward_ms",      "forward_std_ms", "backward_ms",
                                           "backward_std_ms", "optimizer_ms",   "total_ms",
                                           "total_std_ms"};
  show(tables[0], spread);
  tables[0].columns.insert(tables[0].columns.end() - 1, {"tokens_per_s", "mfu_percent", "peak_mb"});
  show(tables[1], spread);
  show(tables[2], {std::begin(kMemory), std::end(kMemory)});
  tables[0].notes = read_times(tables[0].rows);
  for (std::string& note : bench::train_notes(tables[0].rows)) {
    tables[0].notes.push_back(std::move(note));
  }
  tables[1].notes = read_warmup(tables[1].rows);
  tables[1].notes.emplace_back(
      "libraries were loaded by the check before: what is left of a first step is the model's own");
  tables[2].notes = read_memory(tables[2].rows);
  std::erase_if(tables, [](const Table& t) { return t.rows.empty(); });
  return tables;
}

}  // namespace gallop::lab
