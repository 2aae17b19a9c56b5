// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "gpt/trace.h"
#include "gpt/trace_gpu.h"

namespace gallop::gpt {
namespace {

constexpr size_t kShown = 10;

// A time and what it was spent on.
struct Spent {
  Place place;
  double us;
};

double us_of(int64_t begin_ns, int64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns) * 1e-3;
}

// The first step prepares: it counts only where it is alone.
bool counts(const Traced& t, const Place& place) { return place.step > (t.steps > 1 ? 1 : 0); }

// On the host, of ranges that no other is within.
std::vector<Spent> spent(const Traced& t) {
  std::vector<Spent> all;
  for (const Kernel& k : t.kernels) {
    if (counts(t, k.place)) {
      all.push_back({k.place, us_of(k.activity.begin_ns, k.activity.end_ns)});
    }
  }
  if (!t.kernels.empty()) return all;
  std::set<int> parents;
  for (const Range& r : t.ranges) parents.insert(r.parent);
  for (size_t i = 0; i < t.ranges.size(); ++i) {
    const Range& r = t.ranges[i];
    if (parents.count(static_cast<int>(i)) > 0 || !counts(t, r.place)) continue;
    all.push_back({r.place, us_of(r.begin_ns, r.end_ns)});
  }
  return all;
}

double sum(const std::vector<Spent>& all) {
  double us = 0;
  for (const Spent& s : all) us += s.us;
  return us;
}

// "embedding 5.1, layers 0 to 11 28.1 to 29.3 each, head 60.2"
std::string by_layer(const std::map<int64_t, double>& us, int64_t layers) {
  std::vector<std::string> parts;
  if (const auto at = us.find(-1); at != us.end()) {
    parts.push_back(fmt::format("embedding {:.1f}", at->second));
  }
  double least = 0, most = 0;
  int64_t first = -1, last = -1;
  for (const auto& [layer, time] : us) {
    if (layer < 0 || layer >= layers) continue;
    if (first < 0) first = layer, least = most = time;
    last = layer;
    least = std::min(least, time);
    most = std::max(most, time);
  }
  if (first >= 0 && first == last) parts.push_back(fmt::format("layer {} {:.1f}", first, least));
  if (first < last) {
    parts.push_back(fmt::format("layers {} to {} {:.1f} to {:.1f} each", first, last, least, most));
  }
  if (const auto at = us.find(layers); at != us.end()) {
    parts.push_back(fmt::format("head {:.1f}", at->second));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string phases(const Traced& t, const std::vector<Spent>& all, double steps) {
  std::string text = fmt::format("{} by phase and layer, us in a step",
                                 t.kernels.empty() ? "time of the host" : "time of kernels");
  for (const std::string phase : {"forward", "backward", "optimizer", ""}) {
    std::map<int64_t, double> layers;
    double us = 0;
    for (const Spent& s : all) {
      if (s.place.phase != phase) continue;
      us += s.us / steps;
      layers[s.place.layer] += s.us / steps;
    }
    if (us == 0) continue;
    const std::string parts = by_layer(layers, t.layers);
    text += fmt::format("\n{:>9.1f} {:>5.1f} %  {}{}{}", us, 100 * us * steps / sum(all),
                        phase.empty() ? "the rest" : phase, parts.empty() ? "" : ": ", parts);
  }
  return text;
}

std::string kernels(const Traced& t, double steps) {
  struct Line {
    std::string name;
    double count = 0, us = 0;
  };
  std::map<std::string, Line> by_name;
  double all = 0;
  for (const Kernel& k : t.kernels) {
    if (!counts(t, k.place)) continue;
    Line& line = by_name[short_name(k.activity.name)];
    line.name = short_name(k.activity.name);
    const double us = us_of(k.activity.begin_ns, k.activity.end_ns);
    line.us += us / steps;
    line.count += 1 / steps;
    all += us / steps;
  }
  std::vector<Line> lines;
  lines.reserve(by_name.size());
  for (auto& [name, line] : by_name) lines.push_back(std::move(line));
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return a.us > b.us; });
  std::string text = fmt::format("kernels that take the most of {:.1f} us in a step ({} in all)",
                                 all, lines.size());
  for (size_t i = 0; i < std::min(lines.size(), kShown); ++i) {
    const Line& l = lines[i];
    text +=
        fmt::format("\n{:>9.1f} {:>5.1f} %  {:g} x {}", l.us, 100 * l.us / all, l.count, l.name);
  }
  return text;
}

}  // namespace

std::vector<std::string> describe(const Traced& t) {
  const std::vector<Spent> all = spent(t);
  if (all.empty()) return {};
  const auto steps = static_cast<double>(std::max<int64_t>(t.steps > 1 ? t.steps - 1 : t.steps, 1));
  std::vector<std::string> notes;
  if (!t.kernels.empty()) notes.push_back(kernels(t, steps));
  notes.push_back(phases(t, all, steps));
  return notes;
}

}  // namespace gallop::gpt
