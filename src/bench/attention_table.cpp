// SPDX-License-Identifier: MIT
// How rows of bench attention are shown.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/attention_bench.h"
#include "lab/figures.h"

namespace gallop::bench {
namespace {

using lab::number;
using lab::Row;
using lab::text;

constexpr const char* kAxes[] = {"precision", "batch", "heads", "width", "sequence", "attention"};

bool torchs(const Row& row) { return text(row, "attention").starts_with("torch "); }

std::set<std::string> values_of(const std::vector<Row>& rows, const char* name) {
  std::set<std::string> seen;
  for (const Row& row : rows) seen.insert(text(row, name));
  seen.erase("");
  return seen;
}

bool any_has(const std::vector<Row>& rows, const char* name) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Row& row) { return row.find(name) != nullptr; });
}

std::string title(const std::vector<Row>& rows) {
  std::vector<std::string> parts;
  const auto add = [&](const char* name, const char* form) {
    const std::set<std::string> values = values_of(rows, name);
    if (values.size() == 1) parts.push_back(fmt::format(fmt::runtime(form), *values.begin()));
  };
  add("precision", "{}");
  add("batch", "batch {}");
  add("heads", values_of(rows, "heads").contains("1") ? "{} head" : "{} heads");
  add("attention", "{}");
  add("device", "{}");
  add("threads", values_of(rows, "threads").contains("1") ? "{} thread" : "{} threads");
  return fmt::format("Causal attention: {}", fmt::join(parts, ", "));
}

std::vector<std::string> shown(const std::vector<Row>& rows, TrainColumns columns) {
  std::vector<std::string> out;
  for (const char* axis : kAxes) {
    const bool always = std::string_view(axis) == "width" || std::string_view(axis) == "sequence";
    if (always || columns == TrainColumns::all || values_of(rows, axis).size() > 1) {
      out.emplace_back(axis);
    }
  }
  const auto add = [&](const std::string& name) {
    if (any_has(rows, name.c_str())) out.push_back(name);
  };
  if (columns != TrainColumns::memory) {
    for (const char* phase : {"forward", "backward", "total"}) {
      add(fmt::format("{}_median_ms", phase));
      if (columns != TrainColumns::all) continue;
      add(fmt::format("{}_ms", phase));
      add(fmt::format("{}_std_ms", phase));
    }
    for (const char* phase : {"forward", "backward"}) add(fmt::format("{}_tflop_per_s", phase));
    for (const char* phase : {"forward", "backward"}) add(fmt::format("{}_of_torch", phase));
  }
  if (columns != TrainColumns::time) {
    for (const char* name : {"model_mb", "saved_mb", "scratch_mb", "gradients_mb"}) add(name);
  }
  add("peak_mb");
  out.emplace_back("status");
  return out;
}

void add_check_note(const std::vector<Row>& rows, std::vector<std::string>& notes) {
  std::map<std::string, double> worst;  // by precision
  for (const Row& row : rows) {
    const auto error = number(row, "check_error");
    if (!error) continue;
    double& w = worst[text(row, "precision")];
    w = std::max(w, *error);
  }
  if (worst.empty()) return;
  std::vector<std::string> errors;
  errors.reserve(worst.size());
  for (const auto& [precision, error] : worst) {
    errors.push_back(fmt::format("{} {:.1e} (at most {:.0e})", precision, error,
                                 attention_bound(gpt::parse_compute(precision))));
  }
  notes.push_back(fmt::format(
      "checked first: each precision, attention and width on small shapes against fp64 on the CPU, "
      "output and the gradients of queries, keys and values; largest error: {}",
      fmt::join(errors, ", ")));
}

void add_figure_notes(const std::vector<Row>& rows, std::vector<std::string>& notes) {
  double least = 1e18, most = 0;
  for (const Row& row : rows) {
    const double n = number(row, "steps").value_or(0);
    if (n == 0) continue;
    least = std::min(least, n);
    most = std::max(most, n);
  }
  if (most == 0) return;
  const bool gpu = text(rows[0], "device") != "cpu";
  notes.push_back(fmt::format(
      "medians over {} samples; forward and backward are timed apart within each, and what takes "
      "less than a millisecond is repeated in it{}",
      least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most),
      gpu ? "; a sample is one recorded CUDA graph" : ""));
  notes.emplace_back(
      "tflop_per_s counts what causal attention needs, whoever computes more: 2 x batch x heads x "
      "sequence^2 x width forward, 2.5 times that backward");
  notes.emplace_back(
      "peak_mb (2^20 bytes) is queries, keys, values and output, their gradients, what forward "
      "saves for backward, and scratch: --columns memory shows each");
}

void add_failures(const std::vector<Row>& rows, std::vector<std::string>& notes) {
  for (const char* status : {"error", "unsupported", "oom"}) {
    std::vector<std::string> messages;
    for (const Row& row : rows) {
      if (text(row, "status") == status && !torchs(row)) messages.push_back(text(row, "message"));
    }
    if (messages.empty()) continue;
    const size_t kinds = std::set<std::string>(messages.begin(), messages.end()).size();
    const std::string rows_text = messages.size() == 1
                                      ? std::string(status)
                                      : fmt::format("{} ({} rows)", status, messages.size());
    notes.push_back(fmt::format("{}: {}{}", rows_text, messages.front(),
                                kinds > 1 ? "; csv and json have every row's message" : ""));
  }
}

}  // namespace

void compare_with_torch(std::vector<Row>& rows) {
  const auto key = [](const Row& row) {
    return fmt::format("{} {} {} {} {}", text(row, "batch"), text(row, "heads"),
                       text(row, "sequence"), text(row, "width"), text(row, "precision"));
  };
  for (const char* phase : {"forward", "backward"}) {
    const std::string median_ms = fmt::format("{}_median_ms", phase);
    std::map<std::string, double> best;
    for (const Row& row : rows) {
      const auto ms = number(row, median_ms);
      if (!torchs(row) || !ms) continue;
      const auto at = best.try_emplace(key(row), *ms).first;
      at->second = std::min(at->second, *ms);
    }
    for (Row& row : rows) {
      const auto ms = number(row, median_ms);
      const auto theirs = best.find(key(row));
      if (torchs(row) || !ms || theirs == best.end()) continue;
      row.set(fmt::format("{}_of_torch", phase), theirs->second / *ms);
    }
  }
}

lab::Table attention_table(std::vector<Row> rows, TrainColumns columns) {
  lab::Table table;
  table.rows = std::move(rows);
  if (table.rows.empty()) return table;
  table.title = title(table.rows);
  table.columns = shown(table.rows, columns);
  add_check_note(table.rows, table.notes);
  add_figure_notes(table.rows, table.notes);
  if (any_has(table.rows, "forward_of_torch")) {
    table.notes.emplace_back(
        "of_torch: our speed over that of torch's best backend, eager or from a graph, whichever "
        "is faster; torch ran after us, without deterministic algorithms, as is its default");
  }
  const std::set<std::string> slow = values_of(table.rows, "slowdown");
  if (!slow.empty()) {
    table.notes.push_back(fmt::format("the GPU was slowed down by: {}", fmt::join(slow, "; ")));
  }
  add_failures(table.rows, table.notes);
  return table;
}

}  // namespace gallop::bench
