// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "bench/compare.h"
#include "lab/race_table.h"

namespace gallop::lab {
namespace {

struct Ranked {
  std::string name;
  std::vector<double> figures;
  double middle = 0;
};

// The best first, without those that nothing worked with.
std::vector<Ranked> ranked(const RaceOptions& o, const RaceResult& result, size_t workload) {
  std::vector<Ranked> out;
  for (const Standing& s : result.standings) {
    if (s.workload != workload || s.finals.empty()) continue;
    Ranked& r = out.emplace_back();
    r.name = o.racers[s.racer].name;
    r.figures = figures(o, s);
    r.middle = bench::median_with_misses(r.figures);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Ranked& a, const Ranked& b) { return a.middle < b.middle; });
  return out;
}

std::string read(const RaceOptions& o, const std::vector<Ranked>& order) {
  if (order.empty() || !std::isfinite(order[0].middle)) {
    return o.goal == Goal::target ? "none has a median that reached the target"
                                  : "none has a median that is finite";
  }
  const Ranked& first = order[0];
  std::string found = fmt::format("first is {} ({:.4g}{})", first.name, first.middle,
                                  o.goal == Goal::target ? " s" : "");
  std::vector<std::string> alike, behind;
  bool too_few = false;
  for (size_t i = 1; i < order.size(); ++i) {
    const bench::Verdict v = bench::compare(first.figures, order[i].figures);
    too_few = too_few || v.too_few;
    (v.verdict == bench::Finding::greater ? behind : alike).push_back(order[i].name);
  }
  if (order.size() == 1) return found;
  if (too_few) return found + ", by too few seeds to tell it from chance: --seeds 4 or more";
  if (alike.empty()) return found + ", and all others are behind it";
  const std::string same =
      fmt::format("{}; not told apart from it: {}", found, fmt::join(alike, ", "));
  return behind.empty() ? same : fmt::format("{}; behind it: {}", same, fmt::join(behind, ", "));
}

}  // namespace

std::vector<std::string> read_race(const RaceOptions& o, const RaceResult& result) {
  std::vector<std::string> out;
  for (size_t w = 0; w < o.workloads.size(); ++w) {
    const std::string where = o.workloads.size() > 1 ? o.workloads[w].name + ": " : "";
    out.push_back(where + read(o, ranked(o, result, w)));
  }
  return out;
}

}  // namespace gallop::lab
