// SPDX-License-Identifier: MIT
#include "lab/race_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "bench/compare.h"
#include "lab/terminal.h"

namespace gallop::lab {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(200);
constexpr auto kPlain = std::chrono::seconds(10);
constexpr size_t kLeaders = 8;

double seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

const char* name_of(Entry::Stage stage) {
  return stage == Entry::Stage::pace ? "pace" : stage == Entry::Stage::tune ? "tuning" : "finals";
}

std::string describe(const RaceOptions& race, const Entry& e) {
  const Racer& racer = race.racers[e.racer];
  std::string text = racer.name;
  if (const Settings& tried = racer.candidates[e.candidate]; !tried.empty()) {
    text.append(1, ' ').append(settings_text(tried));
  }
  if (race.workloads.size() > 1) text += " on " + race.workloads[e.workload].name;
  return text;
}

}  // namespace

RaceProgress::RaceProgress(const RaceOptions& race, const std::vector<Entry>& stage)
    : race_(race),
      live_(race),
      stage_(stage.empty() ? "" : name_of(stage[0].stage)),
      total_(stage.size()),
      terminal_(stderr_redraws()),
      start_(Clock::now()),
      last_(start_) {}

RaceProgress::~RaceProgress() {
  try {
    erase();
    if (!terminal_ && ended_ > 0) fmt::print(stderr, "{}\n", summary());
  } catch (...) {  // progress is never worth ending the program
  }
}

void RaceProgress::known(const Entry& entry, const TrialResult& result) {
  ++known_;
  live_.end(entry, result);
  figures_[describe(race_, entry)].push_back(figure(race_, result));
}

void RaceProgress::begin(const Entry& entry) {
  running_[&entry] = {Clock::now(), {}};
  live_.begin(entry);
}

void RaceProgress::point(const Entry& entry, const TrialPoint& point) {
  running_[&entry].last = point;
  live_.point(entry, point);
}

void RaceProgress::end(const Entry& entry, const TrialResult& result, bool again) {
  running_.erase(&entry);
  if (again) return;
  ++ended_;
  live_.end(entry, result);
  figures_[describe(race_, entry)].push_back(figure(race_, result));
}

std::string RaceProgress::summary() const {
  const double spent = seconds(Clock::now() - start_);
  const size_t left = total_ - known_ - ended_;
  std::string text = fmt::format("race, {}: {} of {} trials  {}", stage_, known_ + ended_, total_,
                                 clock_text(spent));
  if (known_ > 0) text += fmt::format("  {} from before", known_);
  if (ended_ > 0 && left > 0) {
    const double each = spent / static_cast<double>(ended_);
    text += fmt::format("  ETA {}", clock_text(each * static_cast<double>(left)));
  }
  return text;
}

std::string RaceProgress::line_of(const Entry& entry, const Running& running) const {
  std::string text = fmt::format("  {}, seed {}", describe(race_, entry), entry.seed);
  const double spent = seconds(Clock::now() - running.since);
  if (!running.last) return text + fmt::format("  {}", clock_text(spent));
  const TrialPoint& p = *running.last;
  const double part = static_cast<double>(p.step) / static_cast<double>(entry.spec.steps);
  return text + fmt::format("  step {} of {}  loss {:.4f}, validation {:.4f}  ETA {}", p.step,
                            entry.spec.steps, p.loss, p.validation,
                            clock_text(spent / part * (1 - part)));
}

std::vector<std::string> RaceProgress::leaders(size_t most) const {
  struct Leader {
    double middle;
    size_t seeds;
    std::string name;
  };
  std::vector<Leader> order;
  for (const auto& [name, values] : figures_) {
    const double middle = bench::median_with_misses(values);
    if (std::isfinite(middle)) order.push_back({middle, values.size(), name});
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Leader& a, const Leader& b) { return a.middle < b.middle; });
  std::vector<std::string> out;
  for (size_t i = 0; i < std::min(order.size(), most); ++i) {
    const Leader& l = order[i];
    const char* unit = race_.goal == Goal::target ? " s" : "";
    out.push_back(fmt::format("  {}. {:.4g}{}  {}", i + 1, l.middle, unit, l.name));
    if (l.seeds > 1) out.back() += fmt::format(", median of {} seeds", l.seeds);
  }
  return out;
}

std::vector<std::string> RaceProgress::lines(size_t most) const {
  std::vector<std::string> out = {summary()};
  std::vector<std::string> leading;
  if (stage_ != "pace") leading = leaders(std::min(kLeaders, (most - 1) / 2));
  const size_t room = most - 1 - leading.size();
  size_t left = running_.size();
  for (const auto& [entry, running] : running_) {
    if (out.size() == room && left > 1) {
      out.push_back(fmt::format("  and {} more", left));
      break;
    }
    out.push_back(line_of(*entry, running));
    --left;
  }
  for (std::string& leader : leading) out.push_back(std::move(leader));
  return out;
}

void RaceProgress::erase() {
  if (drawn_ > 0) fmt::print(stderr, "\x1b[{}A\x1b[J", drawn_);
  drawn_ = 0;
}

void RaceProgress::draw() {
  live_.tell(summary());
  const Clock::time_point now = Clock::now();
  if (now - last_ < (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kPlain))) return;
  last_ = now;
  if (!terminal_) return fmt::print(stderr, "{}\n", summary());
  constexpr size_t kLeastRows = 5;
  const std::vector<std::string> shown = lines(std::max(kLeastRows, terminal_rows()) - 1);
  erase();
  const size_t columns = terminal_columns();
  for (const std::string& line : shown) fmt::print(stderr, "{}\n", cut(line, columns - 1));
  std::fflush(stderr);
  drawn_ = shown.size();
}

}  // namespace gallop::lab
