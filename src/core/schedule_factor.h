// SPDX-License-Identifier: MIT
// The learning-rate schedule as plain numbers, evaluated alike on host and device.
#pragma once

#include "core/rule.h"

namespace gallop::detail {

enum class ScheduleCurve : int { constant, linear, cosine, wsd, step, exponential, one_cycle };

// gallop::Schedule without std types; its fields mean the same.
struct ScheduleData {
  ScheduleCurve curve;
  long long warmup_steps, total_steps, decay_steps, step_size;
  double final_factor, gamma, pct_start, div_factor, final_div_factor;
};

template <class PublicSchedule>
ScheduleData schedule_data(const PublicSchedule& s) {
  return {static_cast<ScheduleCurve>(s.kind),
          s.warmup_steps,
          s.total_steps,
          s.decay_steps,
          s.step_size,
          s.final_factor,
          s.gamma,
          s.pct_start,
          s.div_factor,
          s.final_div_factor};
}

// From `from` at progress 0 to `to` at progress 1 along half a cosine.
GALLOP_FN double cosine_between(double from, double to, double progress) {
  constexpr double kPi = 3.14159265358979323846;
  return to + (from - to) * (1.0 + gallop::cos(kPi * progress)) / 2.0;
}

// As torch's OneCycleLR: the peak falls on step pct_start * total - 1, which need not be whole.
GALLOP_FN double one_cycle_factor(const ScheduleData& s, double k, double total) {
  const double start = 1.0 / s.div_factor;
  const double end = start / s.final_div_factor;
  const double peak = s.pct_start * total - 1.0;
  const double last = total - 1.0;
  if (k > last) k = last;
  if (k <= peak) return peak > 0 ? cosine_between(start, 1.0, k / peak) : 1.0;
  return cosine_between(1.0, end, (k - peak) / (last - peak));
}

// k counts from 0; s must have passed validate().
GALLOP_FN double schedule_factor(const ScheduleData& s, long long k) {
  if (k < s.warmup_steps) {
    return (static_cast<double>(k) + 1.0) / static_cast<double>(s.warmup_steps);
  }
  const double total = static_cast<double>(s.total_steps - s.warmup_steps);
  const double taken = static_cast<double>(k - s.warmup_steps);
  const double progress = taken < total ? taken / total : 1.0;
  switch (s.curve) {
    case ScheduleCurve::constant:
      return 1.0;
    case ScheduleCurve::linear:
      return progress < 1.0 ? 1.0 + (s.final_factor - 1.0) * progress : s.final_factor;
    case ScheduleCurve::cosine:
      return progress < 1.0 ? cosine_between(1.0, s.final_factor, progress) : s.final_factor;
    case ScheduleCurve::wsd: {
      const double decay = static_cast<double>(s.decay_steps);
      const double fallen = taken - (total - decay);
      if (fallen <= 0) return 1.0;
      return fallen < decay ? 1.0 + (s.final_factor - 1.0) * (fallen / decay) : s.final_factor;
    }
    case ScheduleCurve::step:
      return gallop::pow(s.gamma, gallop::floor(taken / static_cast<double>(s.step_size)));
    case ScheduleCurve::exponential:
      return gallop::pow(s.gamma, taken);
    case ScheduleCurve::one_cycle:
      return one_cycle_factor(s, taken, total);
  }
  return 1.0;
}

}  // namespace gallop::detail
