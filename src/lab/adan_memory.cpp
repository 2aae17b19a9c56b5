// SPDX-License-Identifier: MIT
#include "lab/adan_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/train_bench.h"
#include "gallop/error.h"
#include "gpt/planned.h"
#include "lab/adan_shapes.h"
#include "lab/figures.h"

namespace gallop::lab {
namespace {

constexpr double kMb = 1 << 20;

bool on_gpu(const AdanMemoryOptions& o) { return o.device.kind == Device::Kind::cuda; }

double mb(size_t bytes) { return static_cast<double>(bytes) / kMb; }

gpt::Planned planned(const AdanMemoryOptions& o, const gpt::Config& config, const char* optimizer) {
  gpt::TrainerOptions t;
  t.config = config;
  t.device = o.device;
  t.threads = o.threads;
  t.batch = o.batch;
  t.attention = o.attention;
  t.optimizer = optimizer;
  return gpt::plan_training(t);
}

Row shape_row(const char* part, const AdanShape& s) {
  Row row;
  row.set("part", part).set("heads", s.heads).set("layers", s.layers).set("width", s.width);
  return row.end_config();
}

Row peak_row(const AdanShape& s, const gpt::Config& config, const gpt::Planned& adam,
             const gpt::Planned& adan) {
  const double adam_mb = mb(adam.peak.total()), adan_mb = mb(adan.peak.total());
  Row row = shape_row("memory", s);
  row.set("million_params", static_cast<double>(gpt::parameter_count(config)) * 1e-6);
  row.set("adam_peak_mb", adam_mb).set("adan_peak_mb", adan_mb);
  row.set("delta_percent", 100 * (adan_mb / adam_mb - 1));
  row.set("a100_adam_mb", s.a100_adam_mb).set("a100_adan_mb", s.a100_adan_mb);
  row.set("adam_allocated_mb", mb(adam.allocated)).set("adan_allocated_mb", mb(adan.allocated));
  return row;
}

Row class_row(const AdanShape& s, const gpt::MemoryUse& adam, const gpt::MemoryUse& adan) {
  Row row = shape_row("memory by class", s);
  for (int c = 0; c < gpt::kMemoryClasses; ++c) {
    const auto cls = static_cast<gpt::MemoryClass>(c);
    if (cls == gpt::MemoryClass::state) {
      row.set("adam_state_mb", mb(adam[cls])).set("adan_state_mb", mb(adan[cls]));
    } else {
      row.set(fmt::format("{}_mb", gpt::to_string(cls)), mb(adam[cls]));
    }
  }
  return row;
}

// Buffers have gaps between them: what is allocated must fit, not the peak alone.
void add_fit(Row& row, const AdanMemoryOptions& o, const gpt::Planned& adam,
             const gpt::Planned& adan) {
  if (o.memory_bytes <= 0) return;
  const auto have = static_cast<size_t>(o.memory_bytes);
  const size_t wanted = std::max(adam.allocated, adan.allocated);
  if (wanted > have) row.set("missing_mb", mb(wanted - have));
  row.set("status", adam.allocated > have ? "oom" : adan.allocated > have ? "adan oom" : "ok");
}

bool lacks_memory(const Row& row) { return row.find("missing_mb") != nullptr; }

// What most and least differ by, in percent, where only heads differ.
double spread_of_heads(const std::vector<Row>& rows, const char* figure) {
  std::map<std::pair<std::string, std::string>, std::pair<double, double>> ranges;
  double most = 0;
  for (const Row& row : rows) {
    const double x = *number(row, figure);
    auto& [low, high] =
        ranges.try_emplace({text(row, "layers"), text(row, "width")}, x, x).first->second;
    low = std::min(low, x);
    high = std::max(high, x);
    most = std::max(most, 100 * (high / low - 1));
  }
  return most;
}

void add_notes(Table& peaks, const AdanMemoryOptions& o) {
  peaks.notes = read_peaks(peaks.rows);
  peaks.notes.emplace_back(
      "single and multi access (one tensor at a time, all at once) have the same state and "
      "buffers, so the same peak");
  peaks.notes.emplace_back(
      "a100 columns: Adan's published table, PyTorch on an A100 (40 GB), batch 1, sequence 2048");
  peaks.notes.push_back(fmt::format(
      "the others are planned, as before a first step, and nothing was run{}; MB are 2^20 bytes",
      on_gpu(o) ? ", without what CUDA and its libraries take for themselves" : ""));
  if (o.memory_bytes <= 0) return;
  peaks.notes.push_back(fmt::format(
      "status: whether all that training allocates, gaps between buffers included, fits the {}'s "
      "{:.0f} MB",
      on_gpu(o) ? "GPU" : "machine", static_cast<double>(o.memory_bytes) / kMb));
  if (std::any_of(peaks.rows.begin(), peaks.rows.end(), lacks_memory)) {
    peaks.notes.emplace_back(
        "missing_mb is what training with Adan lacks; adan oom: with Adam it fits");
  }
}

}  // namespace

std::vector<std::string> read_peaks(const std::vector<Row>& rows) {
  if (rows.empty()) return {};
  const auto [least, most] =
      std::minmax_element(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
        return *number(a, "delta_percent") < *number(b, "delta_percent");
      });
  return {
      fmt::format("Adan's peak is {:.1f} to {:.1f} % above Adam's: its larger state, there from "
                  "the start, is all of the difference",
                  *number(*least, "delta_percent"), *number(*most, "delta_percent")),
      fmt::format("where heads alone differ, Adam's peak differs by up to {:.3g} %, on the A100 "
                  "by up to {:.3g} %",
                  spread_of_heads(rows, "adam_peak_mb"), spread_of_heads(rows, "a100_adam_mb"))};
}

std::vector<Table> adan_memory(const AdanMemoryOptions& o) {
  if (o.batch < 1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a batch of {} sequences, expected at least 1", o.batch));
  }
  Table peaks, classes;
  int64_t context = 0;
  for (const AdanShape& s : kAdanShapes) {
    const gpt::Config config =
        gpt::parse_model(fmt::format("adan:{}x{}x{}", s.heads, s.layers, s.width));
    context = config.context;
    const gpt::Planned adam = planned(o, config, "adam"), adan = planned(o, config, "adan");
    peaks.rows.push_back(peak_row(s, config, adam, adan));
    add_fit(peaks.rows.back(), o, adam, adan);
    classes.rows.push_back(class_row(s, adam.peak, adan.peak));
  }
  const std::string how =
      fmt::format("fp32, batch {}, context {}, {} attention, {}", o.batch, context,
                  bench::attention_name(o.attention), to_string(o.device));
  peaks.title = fmt::format("Memory at the highest point of a training step: {}", how);
  classes.title = "The same by class: what is in use at that point";
  peaks.columns = {"heads",        "layers",        "width",        "adam_peak_mb",
                   "adan_peak_mb", "delta_percent", "a100_adam_mb", "a100_adan_mb"};
  if (std::any_of(peaks.rows.begin(), peaks.rows.end(), lacks_memory)) {
    peaks.columns.emplace_back("missing_mb");
  }
  peaks.columns.emplace_back("status");
  classes.columns = {"heads",        "layers",        "width",         "parameters_mb",
                     "gradients_mb", "adam_state_mb", "adan_state_mb", "activations_mb",
                     "logits_mb",    "workspace_mb"};
  classes.notes.emplace_back("all but the state is the same with both");
  add_notes(peaks, o);
  return {peaks, classes};
}

}  // namespace gallop::lab
