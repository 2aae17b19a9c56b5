// SPDX-License-Identifier: MIT
// How rows of bench train are shown.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "bench/train_bench.h"
#include "gallop/error.h"
#include "gpt/memory_profile.h"
#include "gpt/trace.h"
#include "lab/figures.h"
#include "lab/progress.h"
#include "lab/signals.h"

namespace gallop::bench {
namespace {

using lab::number;
using lab::text;

constexpr const char* kAxes[] = {"model",     "context",      "batch",    "precision", "mode",
                                 "optimizer", "state",        "rounding", "attention", "recompute",
                                 "overlap",   "accumulation", "warmup"};

// What rows have in a field, each once.
std::vector<std::string> values_of(const std::vector<lab::Row>& rows, std::string_view name) {
  std::vector<std::string> seen;
  for (const lab::Row& row : rows) {
    const std::string t = text(row, name);
    if (!t.empty() && std::find(seen.begin(), seen.end(), t) == seen.end()) seen.push_back(t);
  }
  return seen;
}

std::string title(const std::vector<lab::Row>& rows) {
  std::vector<std::string> parts;
  // Where it is the same in all rows that have it.
  const auto add = [&](const char* name, const char* form, std::string_view unless = "") {
    const std::vector<std::string> values = values_of(rows, name);
    if (values.size() != 1 || values[0] == unless) return;
    parts.push_back(fmt::format(fmt::runtime(form), values[0]));
  };
  add("context", "context {}");
  add("batch", "batch {}");
  add("precision", "{}");
  add("mode", "{}");
  add("optimizer", "optimizer {}");
  add("state", "{} state");
  add("rounding", "rounding {}");
  add("attention", "{} attention");
  add("recompute", "recomputation", "no");
  add("overlap", "updates during backward", "no");
  add("accumulation", "{} batches a step", "1");
  add("device", "{}");
  add("threads", "{} threads", "1");
  return fmt::format("Training steps: {}", fmt::join(parts, ", "));
}

void add_failures(const std::vector<lab::Row>& rows, std::vector<std::string>& notes) {
  constexpr size_t kShown = 8;
  std::map<std::string, std::pair<std::string, size_t>>
      seen;  // by message: the first, and how many
  std::vector<std::string> order;
  for (const lab::Row& row : rows) {
    const std::string message = text(row, "message");
    if (message.empty()) continue;
    auto [it, first] = seen.try_emplace(message, fmt::format("{}", text(row, "status")), 0);
    if (first) order.push_back(message);
    ++it->second.second;
  }
  for (size_t i = 0; i < std::min(order.size(), kShown); ++i) {
    const auto& [status, count] = seen.at(order[i]);
    notes.push_back(count == 1 ? fmt::format("{}: {}", status, order[i])
                               : fmt::format("{} ({} rows): {}", status, count, order[i]));
  }
  if (order.size() > kShown) {
    notes.push_back(fmt::format("{} more rows did not run: csv and json have a message for each",
                                order.size() - kShown));
  }
}

void require_one(const std::vector<TrainCase>& cases, const char* what, const std::string& path) {
  if (path.empty() || cases.size() == 1) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("a {} of {} configurations, expected one", what, cases.size()));
}

std::unique_ptr<gpt::Trace> trace_of(const std::vector<TrainCase>& cases, const std::string& path) {
  if (path.empty()) return nullptr;
  require_one(cases, "trace", path);
  const TrainCase& c = cases[0];
  gpt::TraceOptions o;
  o.path = path;
  o.title = c.model;
  o.device = c.options.device;
  o.layers = c.options.config.layers;
  o.steps += c.warmup;
  return std::make_unique<gpt::Trace>(o);
}

void add_trace(gpt::Trace& trace, const std::string& path, std::vector<std::string>& notes) {
  const gpt::Traced traced = trace.finish();
  notes.push_back(
      fmt::format("the trace of {} steps is in {}: open it in https://ui.perfetto.dev or "
                  "chrome://tracing{}",
                  traced.steps, path,
                  traced.kernels.empty() ? "" : "; tracing takes time: compare runs without it"));
  for (std::string& note : gpt::describe(traced)) notes.push_back(std::move(note));
}

}  // namespace

TrainColumns parse_train_columns(std::string_view name) {
  if (name == "time") return TrainColumns::time;
  if (name == "memory") return TrainColumns::memory;
  if (name == "all") return TrainColumns::all;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("columns '{}', expected time, memory or all", name));
}

std::vector<std::string> varied(const std::vector<lab::Row>& rows) {
  std::vector<std::string> out = {"model"};
  for (const char* axis : kAxes) {
    if (values_of(rows, axis).size() > 1 && axis != out[0]) out.emplace_back(axis);
  }
  return out;
}

void lay_out(lab::Table& table, TrainColumns columns) {
  if (table.rows.empty()) return;
  if (table.title.empty()) table.title = title(table.rows);
  table.columns = varied(table.rows);
  if (columns == TrainColumns::all) {
    table.columns.assign(std::begin(kAxes), std::end(kAxes));
  }
  const auto add = [&](const char* name) {
    const bool known = std::any_of(table.rows.begin(), table.rows.end(),
                                   [&](const lab::Row& row) { return row.find(name) != nullptr; });
    if (known) table.columns.emplace_back(name);
  };
  if (columns != TrainColumns::memory) {
    for (const char* phase : {"forward", "backward", "optimizer"}) {
      add(fmt::format("{}_ms", phase).c_str());
      if (columns != TrainColumns::all) continue;
      add(fmt::format("{}_std_ms", phase).c_str());
      add(fmt::format("{}_median_ms", phase).c_str());
    }
    for (const char* name : {"total_ms", "total_std_ms", "total_median_ms", "tokens_per_s",
                             "tflop_per_s", "mfu_percent", "first_step_s"}) {
      add(name);
    }
  }
  if (columns != TrainColumns::time) {
    for (const char* name : {"parameters_mb", "gradients_mb", "state_mb", "activations_mb",
                             "logits_mb", "workspace_mb"}) {
      add(name);
    }
  }
  add("peak_mb");
  if (columns != TrainColumns::time) add("driver_mb");
  table.columns.emplace_back("status");
}

std::vector<std::string> train_notes(const std::vector<lab::Row>& rows) {
  std::vector<std::string> notes;
  std::map<std::string, double> worst;  // by precision
  for (const lab::Row& row : rows) {
    if (const auto error = number(row, "gradient_error")) {
      double& w = worst[text(row, "precision")];
      w = std::max(w, *error);
    }
  }
  std::vector<std::string> errors;
  errors.reserve(worst.size());
  for (const auto& [precision, error] : worst) {
    errors.push_back(fmt::format("{} {:.1e} (at most {:.0e})", precision, error,
                                 gradient_bound(gpt::parse_compute(precision))));
  }
  if (!errors.empty()) {
    notes.push_back(fmt::format(
        "checked first: a small model of each kind against fp64 on the CPU, loss and every "
        "gradient, and the optimizer against its reference; largest error of a gradient: {}",
        fmt::join(errors, ", ")));
  }
  const bool timed = std::any_of(rows.begin(), rows.end(), [](const lab::Row& row) {
    return row.find("total_ms") != nullptr;
  });
  if (timed) {
    const std::vector<std::string> warm = values_of(rows, "warmup");
    const bool cold = std::find(warm.begin(), warm.end(), "0") != warm.end();
    notes.push_back(fmt::format(
        "means over {} steps after {} of warm-up{}; the phases of a step are measured one by one "
        "and add up to total",
        fmt::join(values_of(rows, "steps"), ", "), fmt::join(warm, ", "),
        cold ? ": where that is 0, the first step is in the figures" : ""));
    const bool gpu = text(rows[0], "device") != "cpu";
    const bool peak = std::any_of(rows.begin(), rows.end(), [](const lab::Row& row) {
      return row.find("mfu_percent") != nullptr;
    });
    notes.push_back(fmt::format(
        "tokens_per_s and tflop_per_s are by the median of total; a token counts 6 operations for "
        "each weight it is multiplied by and 12 x width x context for each layer's attention{}",
        !peak ? ""
        : gpu ? "; mfu_percent is of the GPU's dense peak in that precision, as its maker states it"
              : "; mfu_percent is of what large products reach on this CPU, measured after each "
                "row"));
    notes.push_back(fmt::format(
        "MB are 2^20 bytes at the highest point of a step{}",
        gpu ? "; driver_mb is what the driver has less of, with what libraries take" : ""));
    double saved_mb = 0;
    for (const lab::Row& row : rows) {
      saved_mb = std::max(saved_mb, number(row, "gradients_saved_mb").value_or(0));
    }
    if (saved_mb > 0) {
      notes.push_back(fmt::format(
          "with updates during backward, blocks take turns in the memory of gradients: {}{:.0f} MB "
          "less",
          rows.size() > 1 ? "up to " : "", saved_mb));
    }
    double skipped = 0;
    for (const lab::Row& row : rows) skipped += number(row, "skipped_steps").value_or(0);
    if (skipped > 0) {
      notes.push_back(fmt::format(
          "{:.0f} of the measured steps were skipped, for gradients that fp16 could not hold: "
          "their optimizer only looked",
          skipped));
    }
  }
  std::set<std::string> slow;
  for (const lab::Row& row : rows) {
    if (!text(row, "slowdown").empty()) slow.insert(text(row, "slowdown"));
  }
  if (!slow.empty())
    notes.push_back(fmt::format("the GPU was slowed down by: {}", fmt::join(slow, "; ")));
  add_failures(rows, notes);
  return notes;
}

lab::Table train_bench(const TrainAxes& axes, const TrainTiming& timing, TrainColumns columns,
                       const std::string& profile_memory, const std::string& trace) {
  const std::vector<TrainCase> cases = train_cases(axes);
  require_one(cases, "memory profile", profile_memory);
  const std::unique_ptr<gpt::Trace> traced = trace_of(cases, trace);
  lab::Table table;
  std::vector<std::string> profiled;
  TrainBench bench(timing);
  if (traced) {
    bench.begin = [&](gpt::Trainer& trainer) { trainer.ranges().keep_in(traced.get()); };
    bench.look = [&](gpt::Trainer&) { add_trace(*traced, trace, profiled); };
  }
  if (!profile_memory.empty()) {
    bench.look = [&, before = bench.look](gpt::Trainer& trainer) {
      if (before) before(trainer);
      const gpt::MemoryProfile p = gpt::profile_memory(trainer, cases[0].model);
      gpt::write_trace(p, profile_memory);
      profiled.push_back(fmt::format(
          "the memory profile is in {}: open it in https://ui.perfetto.dev or chrome://tracing",
          profile_memory));
      profiled.push_back(
          fmt::format("in use before and after a step: {:.4g} MB; at the peak: {:.4g} MB; "
                      "allocated from the beginning: {:.4g} MB",
                      static_cast<double>(gpt::sum(p.moments.front())) / (1 << 20),
                      static_cast<double>(gpt::sum(p.moments[p.peak])) / (1 << 20),
                      static_cast<double>(p.allocated()) / (1 << 20)));
      profiled.push_back(fmt::format("activations at the peak, {}", describe_layers(p)));
    };
  }
  lab::Progress progress("bench train", static_cast<int64_t>(cases.size()));
  for (const TrainCase& c : cases) {
    table.rows.push_back(bench.run(c));
    progress.advance(1, fmt::format("{}, context {}", c.model, c.options.time));
    if (lab::Signals::asked()) break;
  }
  lay_out(table, columns);
  table.notes = train_notes(table.rows);
  if (columns == TrainColumns::time) {
    table.notes.emplace_back(
        "--columns memory shows memory by class, --columns all every phase's spread too; csv and "
        "json have everything");
  }
  table.notes.insert(table.notes.end(), profiled.begin(), profiled.end());
  return table;
}

}  // namespace gallop::bench
