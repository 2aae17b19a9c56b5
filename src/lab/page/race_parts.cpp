// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "bench/compare.h"
#include "lab/figures.h"
#include "lab/page/parts.h"

namespace gallop::lab {
namespace {

const std::vector<double>& samples_of(const Row& row, std::string_view name) {
  static const std::vector<double> kNone;
  for (const auto& [field, values] : row.samples()) {
    if (field == name) return values;
  }
  return kNone;
}

// By racer, in the leaderboard's order; those that are not on it yet come after.
using Group = std::pair<std::string, std::vector<const Row*>>;
std::vector<Group> by_racer(const std::vector<std::string>& order, const std::vector<Row>& trials,
                            std::string_view workload, std::string_view stage) {
  std::vector<Group> out;
  out.reserve(order.size());
  for (const std::string& name : order) out.push_back({name, {}});
  for (const Row& t : trials) {
    if (text(t, "workload") != workload || text(t, "stage") != stage) continue;
    const std::string name = text(t, "optimizer");
    auto at = std::find_if(out.begin(), out.end(), [&](const Group& g) { return g.first == name; });
    if (at == out.end()) at = out.insert(out.end(), {name, {}});
    at->second.push_back(&t);
  }
  std::erase_if(out, [](const Group& g) { return g.second.empty(); });
  return out;
}

// One seed's losses over steps or seconds, without those that are not finite.
std::map<double, double> course_of(const Row& trial, std::string_view x_field) {
  const std::vector<double>&x = samples_of(trial, x_field),
        &y = samples_of(trial, "curve_validation");
  std::map<double, double> out;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (std::isfinite(y[i])) out[x[i]] = y[i];
  }
  return out;
}

// One that is over stays where it ended, for seeds that took longer.
bool is_over(const Row& trial) {
  const std::string outcome = text(trial, "outcome");
  return outcome == "finished" || outcome == "reached" || outcome == "missed";
}

struct Course {
  std::map<double, double> points;
  bool over = false;
};

// Between two points as a straight line; nothing before the first.
std::optional<double> value_at(const Course& of, double x) {
  const std::map<double, double>& course = of.points;
  const auto after = course.lower_bound(x);
  if (after == course.end()) {
    return of.over && !course.empty() ? std::optional(course.rbegin()->second) : std::nullopt;
  }
  if (after->first == x) return after->second;
  if (after == course.begin()) return {};
  const auto before = std::prev(after);
  const double part = (x - before->first) / (after->first - before->first);
  return before->second + part * (after->second - before->second);
}

// Where at least half of the seeds have come: the median within the range of all.
Curve over_seeds(const Group& group, std::string_view x_field) {
  constexpr size_t kPoints = 60;  // of seconds, which no two seeds share
  std::vector<Course> courses;
  std::set<double> all;
  for (const Row* t : group.second) {
    courses.push_back({course_of(*t, x_field), is_over(*t)});
    for (const auto& [x, y] : courses.back().points) all.insert(x);
  }
  std::vector<double> grid(all.begin(), all.end());
  if (grid.size() > kPoints) {
    std::vector<double> even;
    for (size_t i = 0; i < kPoints; ++i)
      even.push_back(grid[i * (grid.size() - 1) / (kPoints - 1)]);
    grid = std::move(even);
  }
  Curve curve{group.first, {}, {}, {}, {}};
  for (const double x : grid) {
    std::vector<double> here;
    for (const Course& course : courses) {
      if (const auto y = value_at(course, x)) here.push_back(*y);
    }
    if (here.empty() || 2 * here.size() < courses.size()) continue;
    const auto [low, high] = std::minmax_element(here.begin(), here.end());
    curve.x.push_back(x);
    curve.low.push_back(*low);
    curve.high.push_back(*high);
    curve.middle.push_back(bench::median_with_misses(here));
  }
  return curve;
}

// What was tried, and what came of it: the median over seeds at each rate.
Curve over_rates(const Group& group) {
  std::map<double, std::vector<double>> found;
  for (const Row* t : group.second) {
    const auto rate = number(*t, "lr"), loss = number(*t, "validation_loss");
    if (rate && loss) found[*rate].push_back(*loss);
  }
  Curve curve{group.first, {}, {}, {}, {}};
  for (const auto& [rate, losses] : found) {
    const double loss = bench::median_with_misses(losses);
    if (!std::isfinite(loss)) continue;
    curve.x.push_back(rate);
    curve.middle.push_back(loss);
  }
  return curve;
}

Json standings_part(const std::vector<const Row*>& rows, const std::string& workload) {
  const bool timed = rows[0]->find("time_to_target_s") != nullptr;
  const char* field = timed ? "time_to_target_s" : "validation_loss";
  std::vector<Bar> bars;
  for (const Row* r : rows) {
    const double nan = std::nan("");
    bars.push_back({text(*r, "optimizer"), number(*r, field).value_or(nan),
                    number(*r, "low").value_or(nan), number(*r, "high").value_or(nan),
                    samples_of(*r, field)});
  }
  const std::string title = timed ? "Seconds to the target" : "Validation loss at the end";
  return interval_part(title + workload, timed ? "s" : "", timed, bars);
}

template <class Make>
std::vector<Curve> curves_of(const std::vector<Group>& groups, Make make) {
  std::vector<Curve> out;
  for (const Group& g : groups) {
    if (Curve c = make(g); !c.x.empty()) out.push_back(std::move(c));
  }
  return out;
}

}  // namespace

std::vector<Json> race_parts(const Table& leaderboard, const std::vector<Row>& trials) {
  std::vector<std::string> workloads;
  const auto see = [&](const Row& r) {
    const std::string name = text(r, "workload");
    if (r.find("workload") == nullptr) return;
    if (std::find(workloads.begin(), workloads.end(), name) == workloads.end()) {
      workloads.push_back(name);
    }
  };
  for (const Row& r : leaderboard.rows) see(r);
  for (const Row& r : trials) see(r);
  std::vector<Json> parts;
  for (const std::string& w : workloads) {
    const std::string where = workloads.size() > 1 ? ", " + w : "";
    std::vector<const Row*> standing;
    std::vector<std::string> order;
    for (const Row& r : leaderboard.rows) {
      if (text(r, "workload") != w) continue;
      standing.push_back(&r);
      order.push_back(text(r, "optimizer"));
    }
    if (!standing.empty()) parts.push_back(standings_part(standing, where));
    const std::vector<Group> finals = by_racer(order, trials, w, "final");
    const auto by_steps = curves_of(finals, [](auto& g) { return over_seeds(g, "curve_step"); });
    const auto by_time = curves_of(finals, [](auto& g) { return over_seeds(g, "curve_s"); });
    const char* band = "Lines are medians over seeds, bands all seeds. Click a name to hide it.";
    if (!by_steps.empty()) {
      parts.push_back(
          curve_part("Loss over steps" + where, {"steps", "validation loss"}, by_steps, band));
      parts.push_back(curve_part("Loss over time" + where,
                                 {"seconds in steps, evaluations left out", "validation loss"},
                                 by_time, band));
    }
    const auto rates = curves_of(by_racer(order, trials, w, "tuning"), over_rates);
    const bool tuned =
        std::any_of(rates.begin(), rates.end(), [](const Curve& c) { return c.x.size() > 1; });
    if (tuned) {
      parts.push_back(curve_part("How much the learning rate matters" + where,
                                 {"lr", "validation loss", true}, rates,
                                 "Medians over the seeds of tuning; what diverged is left out."));
    }
  }
  return parts;
}

}  // namespace gallop::lab
