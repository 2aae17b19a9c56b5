// SPDX-License-Identifier: MIT
#include "lab/adam_grid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "bench/step_bench.h"
#include "cpu/thread_pool.h"
#include "gallop/error.h"
#include "jit/compiler.h"
#include "lab/progress.h"
#include "lab/signals.h"
#include "lab/torch_peer.h"

namespace gallop::lab {
namespace {

constexpr const char* kOurs[] = {"unfused_ms", "single_ms", "multi_ms", "compiled_ms"};
constexpr const char* kTorch[] = {"torch_compiled_ms", "torch_single_ms", "torch_foreach_ms",
                                  "torch_fused_ms"};

std::optional<double> number(const Row& row, std::string_view name) {
  const Value* v = row.find(name);
  if (v == nullptr || !std::holds_alternative<double>(*v)) return {};
  return std::get<double>(*v);
}

int64_t integer(const Row& row, std::string_view name) {
  return std::get<int64_t>(*row.find(name));
}

// Why rules cannot be compiled here; empty: they can.
std::string why_not_compiled() {
  try {
    jit::compiler();
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

Row grid_row(const AdamGridOptions& o, int64_t count, int64_t size, bool compiled) {
  bench::StepBench b{bench::equal_tensors(count, size), {}, o.threads, o.sampler, {}, false};
  for (Mode mode : {Mode::unfused, Mode::single, Mode::multi, Mode::compiled}) {
    if (mode == Mode::compiled && !compiled) continue;
    bench::StepContender c;
    c.optimizer = o.optimizer;
    c.mode = mode;
    b.contenders.push_back(c);
  }
  const std::vector<Row> results = bench::run_step_bench(b);
  Row row;
  row.set("num_params", count).set("param_size", size).end_config();
  row.set("compiled_ms", nullptr);
  for (size_t i = 0; i < results.size(); ++i) row.set(kOurs[i], *results[i].find("median_ms"));
  for (const char* field : {"compile_warmup_ms", "cached_warmup_ms"}) {
    if (compiled) row.set(field, *results[3].find(field));
  }
  for (const char* field : {"p5_ms", "p95_ms", "gb_per_s", "ceiling_gb_per_s", "percent_of_ceiling",
                            "isa", "threads", "check"}) {
    row.set(field, *results[2].find(field));
  }
  return row;
}

void add_torch(const std::vector<Row>& torch, Row& row) {
  double best = INFINITY;
  for (const Row& t : torch) {
    const auto ms = number(t, "median_ms");
    if (!ms) continue;
    row.set(std::get<std::string>(*t.find("contender")) + "_ms", *ms);
    best = std::min(best, *ms);
  }
  if (std::isinf(best)) return;
  row.set("best_torch_ms", best);
  row.set("times_faster_than_torch", best / *number(row, "multi_ms"));
}

// "1x16384" for a cell.
std::string cell(const Row& row) {
  return fmt::format("{}x{}", integer(row, "num_params"), integer(row, "param_size"));
}

// Where the ratio a/b is smallest and largest.
struct Extremes {
  double low = INFINITY, high = 0, log_sum = 0;
  int count = 0, wins = 0;
  std::string low_cell, high_cell;

  void add(double ratio, const Row& row) {
    if (ratio < low) low = ratio, low_cell = cell(row);
    if (ratio > high) high = ratio, high_cell = cell(row);
    log_sum += std::log(ratio);
    wins += ratio > 1;
    ++count;
  }
  double middle() const { return std::exp(log_sum / count); }
};

void compare(const std::vector<Row>& rows, const char* field, const std::string& name,
             std::vector<std::string>& out) {
  Extremes e;
  for (const Row& row : rows) {
    const auto theirs = number(row, field), ours = number(row, "multi_ms");
    if (theirs && ours) e.add(*theirs / *ours, row);
  }
  if (e.count == 0) return;
  out.push_back(fmt::format(
      "multi is faster than {} in {} of {} cells: {:.2f}x in the geometric mean, {:.2f}x at worst "
      "({}), {:.2f}x at best ({})",
      name, e.wins, e.count, e.middle(), e.low, e.low_cell, e.high, e.high_cell));
}

}  // namespace

std::vector<std::string> read_grid(const std::vector<Row>& rows) {
  std::vector<std::string> out;
  std::map<std::string, int> winners;
  for (const Row& row : rows) {
    std::string best;
    double best_ms = INFINITY;
    for (const char* field : kOurs) {
      if (const auto ms = number(row, field); ms && *ms < best_ms) best_ms = *ms, best = field;
    }
    if (!best.empty()) ++winners[best.substr(0, best.size() - 3)];
  }
  out.reserve(winners.size());
  for (const auto& [mode, wins] : winners) {
    out.push_back(
        fmt::format("{} is gallop's fastest mode in {} of {} cells", mode, wins, rows.size()));
  }
  compare(rows, "unfused_ms", "unfused", out);
  compare(rows, "single_ms", "single", out);
  compare(rows, "compiled_ms", "compiled", out);
  for (const char* field : kTorch) {
    std::string name(field);
    name = "torch " + name.substr(6, name.size() - 9);
    compare(rows, field, name, out);
  }
  compare(rows, "best_torch_ms", "the best of torch", out);
  std::vector<std::string> slower;
  for (const Row& row : rows) {
    const auto times = number(row, "times_faster_than_torch");
    if (times && *times < 1) slower.push_back(fmt::format("{} ({:.2f}x)", cell(row), *times));
  }
  if (!slower.empty()) {
    out.push_back(fmt::format("torch is faster at {}", fmt::join(slower, ", ")));
  }
  return out;
}

Table adam_grid(const AdamGridOptions& given) {
  AdamGridOptions o = given;
  if (o.threads <= 0) o.threads = cpu::default_threads();
  Table table;
  table.title = fmt::format("{} step in ms per iteration, {} threads", o.optimizer, o.threads);
  std::optional<TorchGrid> torch;
  if (!o.torch_modes.empty()) torch.emplace(o.torch_modes, o.threads, o.sampler.time_limit_s);
  table.columns = {"num_params", "param_size", "compiled_ms", "unfused_ms",
                   "single_ms",  "multi_ms",   "gb_per_s",    "percent_of_ceiling"};
  const std::string without = why_not_compiled();
  Progress progress("adam-grid", static_cast<int64_t>(o.sizes.size() * o.tensors.size()));
  for (int64_t size : o.sizes) {
    for (int64_t count : o.tensors) {
      if (Signals::asked()) break;
      table.rows.push_back(grid_row(o, count, size, without.empty()));
      if (torch) add_torch(torch->cell(count, size), table.rows.back());
      progress.advance(1, cell(table.rows.back()));
    }
  }
  if (torch) {
    for (const char* field : kTorch) table.columns.emplace_back(field);
    table.columns.emplace_back("times_faster_than_torch");
  }
  table.notes = read_grid(table.rows);
  if (!without.empty()) table.notes.push_back(without);
  return table;
}

}  // namespace gallop::lab
