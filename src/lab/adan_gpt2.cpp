// SPDX-License-Identifier: MIT
#include "lab/adan_gpt2.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/step_bench.h"
#include "lab/adan_shapes.h"
#include "lab/progress.h"
#include "lab/signals.h"

namespace gallop::lab {
namespace {

// What is measured once for a shape: ms per step and share of the ceiling of each contender.
Row measured(const AdanGpt2Options& o, const bench::ShapeList& shapes) {
  Row row;
  // One optimizer after the other: the largest shapes would not fit all at once.
  for (const char* optimizer : {"adam", "adan"}) {
    bench::StepBench b{shapes, {}, o.threads, o.sampler, o.device, false};
    for (Mode mode : {Mode::single, Mode::multi}) {
      bench::StepContender s;
      s.optimizer = optimizer;
      s.mode = mode;
      b.contenders.push_back(s);
    }
    for (const Row& result : bench::run_step_bench(b)) {
      const std::string name =
          fmt::format("{}_{}", optimizer, std::get<std::string>(*result.find("mode")));
      row.set(name + "_ms", *result.find("median_ms"));
      row.set(name + "_percent", *result.find("percent_of_ceiling"));
      row.set("ceiling_gb_per_s", *result.find("ceiling_gb_per_s"));
    }
  }
  return row;
}

double number(const Row& row, std::string_view name) { return std::get<double>(*row.find(name)); }

std::vector<std::string> reading(const Table& table, int steps) {
  double fastest = 0, slowest = 1e300;
  for (const Row& row : table.rows) {
    const double gain = number(row, "adan_single_ms") / number(row, "adan_multi_ms");
    fastest = std::max(fastest, gain);
    slowest = std::min(slowest, gain);
  }
  if (table.rows.empty()) return {};
  return {fmt::format("Adan with all tensors at once is {:.2f}x to {:.2f}x as fast as one tensor "
                      "at a time",
                      slowest, fastest),
          fmt::format("total_ms columns are {} steps; heads do not change the parameters, so rows "
                      "that differ in heads alone share a measurement",
                      steps)};
}

}  // namespace

Table adan_gpt2(const AdanGpt2Options& o) {
  Table table;
  table.title = fmt::format("Adam and Adan on GPT-2 shapes (vocabulary 49280, sequence 2048), {}",
                            to_string(o.device));
  table.columns = {"heads",         "layers",
                   "width",         "million_params",
                   "adam_total_ms", "adan_single_total_ms",
                   "adan_total_ms", "adan_over_adam_percent",
                   "adam_multi_ms", "adam_multi_percent",
                   "adan_multi_ms", "adan_multi_percent"};
  std::map<std::pair<int, int>, Row> done;
  Progress progress("adan-gpt2", std::size(kAdanShapes));
  int left_out = 0;
  for (const AdanShape& m : kAdanShapes) {
    if (Signals::asked()) break;
    const bench::ShapeList shapes =
        bench::parse_shapes(fmt::format("gpt2:{}x{}", m.layers, m.width));
    progress.advance(1, shapes.label);
    if (shapes.elements() > o.most_parameters) {
      ++left_out;
      continue;
    }
    auto it = done.find({m.layers, m.width});
    if (it == done.end()) {
      it = done.emplace(std::pair{m.layers, m.width}, measured(o, shapes)).first;
    }
    Row row;
    row.set("part", "time").set("heads", m.heads).set("layers", m.layers).set("width", m.width);
    row.end_config().set("million_params", static_cast<double>(shapes.elements()) * 1e-6);
    const Row& r = it->second;
    row.set("adam_total_ms", o.steps * number(r, "adam_multi_ms"));
    row.set("adan_single_total_ms", o.steps * number(r, "adan_single_ms"));
    row.set("adan_total_ms", o.steps * number(r, "adan_multi_ms"));
    row.set("adan_over_adam_percent",
            100 * number(r, "adan_multi_ms") / number(r, "adam_multi_ms"));
    for (const auto& [key, value] : r) row.set(key, value);
    table.rows.push_back(std::move(row));
  }
  table.notes = reading(table, o.steps);
  if (left_out > 0) {
    table.notes.push_back(fmt::format("{} shapes of more than {} parameters were left out",
                                      left_out, o.most_parameters));
  }
  return table;
}

}  // namespace gallop::lab
