// SPDX-License-Identifier: MIT
#include "lab/advise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "gallop/error.h"
#include "gallop/rules.h"
#include "lab/advise_plan.h"
#include "lab/figures.h"
#include "lab/step_model.h"
#include "optimizer/rule.h"

namespace gallop::lab {
namespace {

constexpr double kGb = 1e9;

std::string status_of(const Way& w, bool fits) {
  if (!fits) return "does not fit";
  if (!w.overlap && !w.recompute) return "fits";
  return fmt::format("fits with {}", w.overlap && w.recompute ? "overlap and recomputation"
                                     : w.overlap              ? "overlap"
                                                              : "recomputation");
}

double gb(size_t bytes) { return static_cast<double>(bytes) / kGb; }

Row row_of(const std::string& optimizer, const std::string& state, const Subject& s,
           const Update& update, const Hardware& on, int64_t usable) {
  const auto needs = [&](const Way& w) { return w.allocated + update.state_bytes; };
  const auto fits = [&](const Way& w) { return static_cast<int64_t>(needs(w)) <= usable; };
  auto way = std::find_if(s.ways.begin(), s.ways.end(), fits);
  const bool found = way != s.ways.end();
  if (!found) {
    way = std::min_element(s.ways.begin(), s.ways.end(),
                           [](const Way& a, const Way& b) { return a.allocated < b.allocated; });
  }
  gpt::MemoryUse use = way->use;
  use[gpt::MemoryClass::state] = update.state_bytes;
  const double free = (static_cast<double>(usable) - static_cast<double>(needs(*way))) / kGb;
  Row row;
  row.set("optimizer", optimizer).set("state", state).set("peak_gb", gb(use.total()));
  for (int c = 0; c < gpt::kMemoryClasses; ++c) {
    const auto cls = static_cast<gpt::MemoryClass>(c);
    row.set(fmt::format("{}_gb", gpt::to_string(cls)), gb(use[cls]));
  }
  row.set("allocated_gb", gb(needs(*way))).set("free_gb", free);
  if (!found) row.set("missing_gb", -free);
  row.set("optimizer_gb", update.bytes / kGb).set("optimizer_ms", update.seconds * 1e3);
  double step = update.seconds;
  if (s.model) {
    const gpt::TrainerOptions& t = s.trainer;
    const double seconds =
        compute_seconds(work_of(t.config, t.batch, time_of(s), t.compute), on, t.compute) *
        (way->recompute ? kRecomputation : 1);
    step += seconds;
    row.set("compute_ms", seconds * 1e3);
  }
  row.set("step_ms", step * 1e3).set("overlap", way->overlap).set("recompute", way->recompute);
  row.set("status", status_of(*way, found));
  return row;
}

void sort_rows(std::vector<Row>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    const auto key = [](const Row& r) {
      const bool lacks = r.find("missing_gb") != nullptr;
      const double ms = *number(r, "step_ms"), memory = *number(r, "allocated_gb");
      return lacks ? std::tuple(true, memory, ms) : std::tuple(false, ms, memory);
    };
    return key(a) < key(b);
  });
}

std::string title_of(const AdviseOptions& o, const Subject& s) {
  std::string how;
  if (s.model) how = fmt::format(", batch {}, context {}", s.trainer.batch, time_of(s));
  return fmt::format("Training {} in {:.4g} GB: {}{}, {}", o.model,
                     static_cast<double>(o.memory_bytes) / kGb, gpt::to_string(s.trainer.compute),
                     how, o.on.name);
}

std::vector<std::string> columns_of(const std::vector<Row>& rows) {
  std::vector<std::string> columns;
  for (const char* name : {"optimizer", "state", "peak_gb", "parameters_gb", "gradients_gb",
                           "state_gb", "activations_gb", "logits_gb", "workspace_gb", "free_gb",
                           "optimizer_ms", "step_ms", "status"}) {
    const auto empty = [&](const Row& row) { return number(row, name) == 0.0; };
    if (!std::all_of(rows.begin(), rows.end(), empty)) columns.emplace_back(name);
  }
  return columns;
}

bool lacks(const Row& row) { return row.find("missing_gb") != nullptr; }

std::string nothing_fits(const Row& least) {
  const double missing = *number(least, "missing_gb");
  const bool by_batch = *number(least, "activations_gb") + *number(least, "logits_gb") > missing;
  return fmt::format("nothing fits; what takes least, {} with {} state, lacks {:.3g} GB{}",
                     text(least, "optimizer"), text(least, "state"), missing,
                     by_batch ? ": try a smaller --batch or --context" : "");
}

std::vector<std::string> notes_on_memory(const std::vector<Row>& rows, const AdviseOptions& o,
                                         const Subject& s, int64_t usable) {
  std::vector<std::string> notes;
  if (std::all_of(rows.begin(), rows.end(), lacks)) notes.push_back(nothing_fits(rows[0]));
  notes.push_back(fmt::format(
      "GB are 10^9 bytes; free_gb is what is left of {:.4g} GB{}",
      static_cast<double>(usable) / kGb,
      std::any_of(rows.begin(), rows.end(), lacks) ? ", or missing where it is below 0" : ""));
  if (o.reserved_bytes > 0) {
    notes.push_back(fmt::format("{:.3g} GB are left to CUDA's context and libraries (--reserve)",
                                static_cast<double>(o.reserved_bytes) / kGb));
  }
  if (gpt::in_16_bits(s.trainer)) {
    notes.push_back(fmt::format(
        "state_gb has what {} matrices lack of fp32 too ({}), whatever the format of the rest",
        gpt::to_string(s.trainer.compute),
        to_string(gpt::rounding_in(s.trainer.compute, s.trainer.rounding))));
  }
  if (!s.model) {
    notes.emplace_back("of shapes there are parameters, gradients and state, no activations");
    return notes;
  }
  notes.push_back(fmt::format(
      "peak_gb is the highest point of a step, planned {}; gaps between buffers must fit besides",
      !o.on.gpu        ? "as on this CPU"
      : s.asked_device ? "as on this machine's GPU"
                       : "without a GPU (cuDNN's workspace is as on an H200)"));
  const auto used = [&](const char* what) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const Row& r) { return *r.find(what) == Value(true); });
  };
  if (used("overlap")) {
    notes.emplace_back(
        "overlap (--overlap): updates during backward, gradients of three blocks at a time, no "
        "clipping; about the same time");
  }
  if (used("recompute")) {
    notes.emplace_back(
        "recomputation (--recompute): activations are made again, forward and backward take a "
        "third longer");
  }
  if (std::any_of(rows.begin(), rows.end(), lacks) && s.ways.size() > 1) {
    notes.emplace_back("what does not fit is shown in the way that takes least");
  }
  return notes;
}

std::vector<std::string> notes_on_time(const AdviseOptions& o, const Subject& s) {
  std::vector<std::string> notes;
  notes.push_back(fmt::format(
      "times are predicted for {}{}: {:.4g} GB/s of a copy, {:.4g} TFLOP/s of {} products, {}",
      o.on.name, o.on.gpu ? " (--gpu)" : "", o.on.copy_bytes / kGb,
      peak_of(o.on, s.trainer.compute) * 1e-12, gpt::to_string(s.trainer.compute), o.on.source));
  notes.emplace_back(
      "optimizer_ms: what a step reads and writes, at the part of a copy's speed that AdamW "
      "reaches "
      "with such state");
  if (s.model && o.on.gpu) {
    notes.push_back(fmt::format(
        "step_ms: with forward and backward by four constants fitted to nine measured steps (S to "
        "10B, bf16, H200), which are 3 % off in the mean and 5 % at most, nine others 8 %{}",
        o.on.name == "h200" ? "" : "; no other GPU was measured"));
  } else if (s.model) {
    notes.emplace_back("step_ms: with forward and backward at 75 % of large products' rate");
  }
  std::vector<std::string> products, more;
  for (const std::string& name : o.optimizers) {
    const Rule& rule = find_rule(name);
    if (rule.stages != 0) products.push_back(name);
    if (rule.decides()) more.push_back(name);
  }
  if (!products.empty()) {
    notes.push_back(
        fmt::format("{}: products of matrices at 60 % of their rate; 16 % off at most on an H200 "
                    "(Muon at three sizes, SOAP at one)",
                    fmt::join(products, ", ")));
  }
  if (!more.empty()) {
    notes.push_back(fmt::format("{}: at least; what only some tensors need is not counted",
                                fmt::join(more, ", ")));
  }
  return notes;
}

}  // namespace

Table advise(const AdviseOptions& options) {
  AdviseOptions o = options;
  if (o.memory_bytes == 0) o.memory_bytes = o.on.memory_bytes;
  const int64_t usable = o.memory_bytes - o.reserved_bytes;
  if (usable <= 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{:.3g} GB of memory with {:.3g} reserved, expected more than that",
                            static_cast<double>(o.memory_bytes) / kGb,
                            static_cast<double>(o.reserved_bytes) / kGb));
  }
  if (o.optimizers.empty()) o.optimizers = rule_names();
  for (const std::string& name : o.optimizers) rule_info(name);  // throws what there is
  const bool all_states = o.states.empty();
  if (all_states) o.states = {"fp32", "bf16", "8bit", "4bit"};
  if (all_states && o.compute == gpt::Compute::fp64) o.states = {"fp32"};  // as wide as parameters
  std::vector<StatePolicy> policies;
  for (const std::string& state : o.states) policies.push_back(parse_state_policy(state));

  const Subject subject = subject_of(o);
  Table table;
  for (const std::string& optimizer : o.optimizers) {
    size_t least = SIZE_MAX / 100;
    for (size_t i = 0; i < policies.size(); ++i) {
      const Update update = update_of(optimizer, subject, policies[i], o.on);
      if (all_states && 100 * update.state_bytes > 99 * least) continue;
      least = update.state_bytes;
      table.rows.push_back(row_of(optimizer, o.states[i], subject, update, o.on, usable));
    }
  }
  sort_rows(table.rows);
  table.title = title_of(o, subject);
  table.columns = columns_of(table.rows);
  table.notes = notes_on_memory(table.rows, o, subject, usable);
  for (std::string& note : notes_on_time(o, subject)) table.notes.push_back(std::move(note));
  return table;
}

}  // namespace gallop::lab
