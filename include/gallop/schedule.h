// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gallop {

enum class ScheduleKind { constant, linear, cosine, wsd, step, exponential, one_cycle };

// What multiplies a group's learning rate at each step. Steps are counted from 0.
struct Schedule {
  ScheduleKind kind = ScheduleKind::constant;
  int64_t warmup_steps = 0;       // before any kind: factor (k + 1) / warmup_steps
  int64_t total_steps = 0;        // linear, cosine, wsd, one_cycle: warm-up included
  double final_factor = 0;        // linear, cosine, wsd: the factor from total_steps on
  int64_t decay_steps = 0;        // wsd: how many of the last steps fall linearly
  int64_t step_size = 0;          // step: steps between two multiplications by gamma
  double gamma = 0.1;             // step, exponential
  double pct_start = 0.3;         // one_cycle: share of the cycle that rises
  double div_factor = 25;         // one_cycle: starts at 1 / div_factor
  double final_div_factor = 1e4;  // one_cycle: ends at 1 / (div_factor * final_div_factor)

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// k: how many steps were taken before this one. Past its end a schedule holds its last value.
double schedule_factor(const Schedule& schedule, int64_t k);

// Refuses values out of range and fields changed from their default that the kind does not use
// (total_steps is allowed with every kind).
void validate(const Schedule& schedule);

std::string to_string(ScheduleKind kind);
ScheduleKind schedule_kind(std::string_view name);

// "cosine:warmup=100,total=1000,final=0.1", with the fields that differ from their default. The
// keys are warmup, total, decay, step, final, gamma, pct, div and final_div. parse_schedule
// validates; parse_schedule(format(s)) == s for every valid s.
std::string format(const Schedule& schedule);
Schedule parse_schedule(std::string_view text);

}  // namespace gallop
