// SPDX-License-Identifier: MIT
#include "lab/race_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

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
  best_.try_emplace(describe(race_, entry), figure(race_, result));
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
  const auto [at, first] = best_.try_emplace(describe(race_, entry), figure(race_, result));
  if (!first) at->second = std::min(at->second, figure(race_, result));
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

std::vector<std::string> RaceProgress::leaders() const {
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, value] : best_) {
    if (std::isfinite(value)) order.emplace_back(value, name);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string> out;
  for (size_t i = 0; i < std::min(order.size(), kLeaders); ++i) {
    const char* unit = race_.goal == Goal::target ? " s" : "";
    out.push_back(fmt::format("  {}. {:.4g}{}  {}", i + 1, order[i].first, unit, order[i].second));
  }
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
  std::vector<std::string> lines = {summary()};
  for (const auto& [entry, running] : running_) lines.push_back(line_of(*entry, running));
  if (stage_ != "pace") {
    for (std::string& leader : leaders()) lines.push_back(std::move(leader));
  }
  erase();
  const size_t columns = terminal_columns();
  for (const std::string& line : lines) fmt::print(stderr, "{}\n", line.substr(0, columns - 1));
  std::fflush(stderr);
  drawn_ = lines.size();
}

}  // namespace gallop::lab
