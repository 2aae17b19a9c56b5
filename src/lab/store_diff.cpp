// SPDX-License-Identifier: MIT
#include "lab/store_diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "bench/compare.h"
#include "gallop/error.h"
#include "lab/figures.h"

namespace gallop::lab {
namespace {

constexpr double kAlpha = 0.05;

constexpr size_t kRuns = 4;  // four against four can differ with p below 0.05

struct Side {
  std::map<int64_t, std::vector<double>> by_run;

  std::vector<double> values(bool runs) const {
    std::vector<double> out;
    for (const auto& [run, values] : by_run) {
      if (runs) {
        out.push_back(bench::median_with_misses(values));
      } else {
        out.insert(out.end(), values.begin(), values.end());
      }
    }
    return out;
  }
};

struct Pair {
  std::string kind, metric;
  Row config;
  Side a, b;
};

bool more_is_better(const std::string& metric) {
  return metric.find("_per_s") != std::string::npos ||
         metric.find("percent") != std::string::npos ||
         metric.find("accuracy") != std::string::npos;
}

std::string metric_of(const Row& row, const std::string& asked) {
  if (!asked.empty()) return asked;
  return row.samples().empty() ? "" : row.samples().front().first;
}

// The single values if there are some, or the field itself: then repeated runs are the samples.
void add_values(const Row& row, const std::string& metric, std::vector<double>& to) {
  for (const auto& [name, values] : row.samples()) {
    if (name == metric) return void(to.insert(to.end(), values.begin(), values.end()));
  }
  if (const auto value = number(row, metric)) to.push_back(*value);
}

Row config_of(const Row& row) {
  Row out;
  size_t at = 0;
  for (const auto& [name, value] : row) {
    if (at++ < row.config_size()) out.set(name, value);
  }
  return out;
}

std::vector<Pair> matched(const std::vector<StoredRow>& a, const std::vector<StoredRow>& b,
                          const std::string& metric) {
  std::map<std::string, size_t> where;
  std::vector<Pair> pairs;
  const auto add = [&](const std::vector<StoredRow>& rows, Side Pair::*side) {
    for (const StoredRow& r : rows) {
      const std::string name = metric_of(r.row, metric);
      if (name.empty()) continue;
      auto [at, first] = where.try_emplace(r.config_hash, pairs.size());
      if (first) pairs.push_back({r.kind, name, config_of(r.row), {}, {}});
      Side& to = pairs[at->second].*side;
      std::vector<double> values;
      add_values(r.row, name, values);
      if (!values.empty()) {
        std::vector<double>& all = to.by_run[r.run];
        all.insert(all.end(), values.begin(), values.end());
      }
    }
  };
  add(a, &Pair::a);
  add(b, &Pair::b);
  return pairs;
}

// Fields that are not the same in all: what tells the rows of a table apart.
std::vector<std::string> telling(const std::vector<const Pair*>& pairs) {
  std::vector<std::string> out;
  for (const Pair* p : pairs) {
    for (const auto& [name, value] : p->config) {
      const bool differs =
          std::any_of(pairs.begin(), pairs.end(), [&, n = name, v = value](auto* q) {
            const Value* other = q->config.find(n);
            return other == nullptr || *other != v;
          });
      if (differs && std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
    }
  }
  return out;
}

struct Compared {
  std::vector<double> a, b;
  bool by_runs = false;
  bool proves = false;  // a difference between them is one between what they measure
  bench::Verdict verdict;
};

Compared compare(const Pair& p, Unit unit) {
  Compared c;
  const bool enough = std::min(p.a.by_run.size(), p.b.by_run.size()) >= kRuns;
  c.by_runs = unit == Unit::runs || (unit == Unit::automatic && enough);
  c.proves = c.by_runs || unit == Unit::samples;
  c.a = p.a.values(c.by_runs);
  c.b = p.b.values(c.by_runs);
  c.verdict = bench::compare(c.a, c.b);
  return c;
}

std::set<std::string> machines(const std::vector<StoredRow>& rows) {
  std::set<std::string> out;
  for (const StoredRow& row : rows) out.insert(row.machine);
  return out;
}

}  // namespace

Diff compare_results(const std::vector<StoredRow>& a, const std::vector<StoredRow>& b,
                     const DiffOptions& options) {
  const std::vector<Pair> pairs = matched(a, b, options.metric);
  std::vector<const Pair*> both;
  size_t only_a = 0, only_b = 0;
  for (const Pair& p : pairs) {
    if (p.a.by_run.empty() && p.b.by_run.empty()) continue;
    if (p.b.by_run.empty()) ++only_a;
    if (p.a.by_run.empty()) ++only_b;
    if (!p.a.by_run.empty() && !p.b.by_run.empty()) both.push_back(&p);
  }
  if (both.empty()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("no configuration is in both ({} rows and {}){}, expected at least one",
                            a.size(), b.size(),
                            options.metric.empty() ? "" : " with values of " + options.metric));
  }
  std::vector<Compared> compared;
  std::vector<double> ps;
  for (const Pair* p : both) {
    compared.push_back(compare(*p, options.unit));
    ps.push_back(compared.back().verdict.p);
  }
  ps = bench::holm(ps);

  Diff diff;
  Table& table = diff.table;
  const std::vector<std::string> shown = telling(both);
  bool too_few = false;
  for (size_t i = 0; i < both.size(); ++i) {
    const Pair& p = *both[i];
    const Compared& c = compared[i];
    const bench::Verdict& v = c.verdict;
    const bool seen = v.verdict != bench::Finding::no_difference_seen && ps[i] <= kAlpha;
    const bool better = (v.verdict == bench::Finding::less) != more_is_better(p.metric);
    const double nearest = more_is_better(p.metric) ? 1 / v.interval.high : v.interval.low;
    const bool forgiven = seen && !better && nearest <= 1 + options.tolerance;
    const char* verdict = !seen      ? "no difference seen"
                          : forgiven ? "worse, within the tolerance"
                          : better   ? (c.proves ? "better" : "maybe better")
                                     : (c.proves ? "worse" : "maybe worse");
    ++(!seen || forgiven ? diff.same
       : !c.proves       ? diff.unproven
       : better          ? diff.better
                         : diff.worse);
    too_few |= v.too_few;
    Row row;
    row.set("kind", p.kind);
    for (const std::string& name : shown) {
      const Value* value = p.config.find(name);
      row.set(name, value == nullptr ? Value() : *value);
    }
    row.set("metric", p.metric);
    row.set("a", bench::median_with_misses(c.a)).set("b", bench::median_with_misses(c.b));
    row.set("b_over_a", v.ratio).set("low", v.interval.low).set("high", v.interval.high);
    row.set("p", ps[i]).set("unit", c.by_runs ? "runs" : "samples");
    row.set("n_a", c.a.size()).set("n_b", c.b.size()).set("verdict", verdict);
    table.rows.push_back(std::move(row));
  }
  table.notes.push_back(
      fmt::format("{} better, {} worse, {} maybe, {} without a difference that can be seen",
                  diff.better, diff.worse, diff.unproven, diff.same));
  table.notes.emplace_back(
      "a and b are medians; low and high bound their ratio with 95 % confidence (bootstrap); p is "
      "Mann-Whitney's, corrected for the number of rows (Holm); a difference needs both");
  if (too_few) {
    table.notes.emplace_back(
        "some rows have too few samples to show any difference, however large it is");
  }
  if (diff.unproven > 0) {
    table.notes.push_back(fmt::format(
        "maybe: the samples differ, but those of one process share its luck, and two processes of "
        "the same program often do too; with {} runs on each side it is known",
        kRuns));
  }
  const auto here = machines(a), there = machines(b);
  if (here != there) {
    table.notes.push_back(
        fmt::format("they were measured on different machines, which may be all the difference: {} "
                    "and {}",
                    fmt::join(here, " / "), fmt::join(there, " / ")));
  }
  if (only_a + only_b > 0) {
    table.notes.push_back(
        fmt::format("not compared: {} configurations are in a alone, {} in b", only_a, only_b));
  }
  return diff;
}

}  // namespace gallop::lab
