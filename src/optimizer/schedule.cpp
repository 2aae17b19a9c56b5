// SPDX-License-Identifier: MIT
#include "gallop/schedule.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <system_error>
#include <type_traits>

#include "core/schedule_factor.h"
#include "gallop/error.h"

namespace gallop {
namespace {

constexpr std::array<std::string_view, 7> kKindNames = {
    "constant", "linear", "cosine", "wsd", "step", "exponential", "one-cycle"};

constexpr bool same_code(ScheduleKind kind, detail::ScheduleCurve curve) {
  return static_cast<int>(kind) == static_cast<int>(curve);
}
static_assert(same_code(ScheduleKind::constant, detail::ScheduleCurve::constant) &&
              same_code(ScheduleKind::linear, detail::ScheduleCurve::linear) &&
              same_code(ScheduleKind::cosine, detail::ScheduleCurve::cosine) &&
              same_code(ScheduleKind::wsd, detail::ScheduleCurve::wsd) &&
              same_code(ScheduleKind::step, detail::ScheduleCurve::step) &&
              same_code(ScheduleKind::exponential, detail::ScheduleCurve::exponential) &&
              same_code(ScheduleKind::one_cycle, detail::ScheduleCurve::one_cycle));

constexpr unsigned bit(ScheduleKind kind) { return 1u << static_cast<unsigned>(kind); }

constexpr unsigned kAnyKind = ~0u;
constexpr unsigned kToFinal =
    bit(ScheduleKind::linear) | bit(ScheduleKind::cosine) | bit(ScheduleKind::wsd);
constexpr unsigned kNeedsTotal = kToFinal | bit(ScheduleKind::one_cycle);
constexpr unsigned kByGamma = bit(ScheduleKind::step) | bit(ScheduleKind::exponential);

template <class T>
struct Field {
  std::string_view key;   // in the text form
  std::string_view name;  // in the struct
  T Schedule::*member;
  unsigned kinds;  // which use it
};

constexpr std::array<Field<int64_t>, 4> kCounts = {{
    {"warmup", "warmup_steps", &Schedule::warmup_steps, kAnyKind},
    {"total", "total_steps", &Schedule::total_steps, kAnyKind},
    {"decay", "decay_steps", &Schedule::decay_steps, bit(ScheduleKind::wsd)},
    {"step", "step_size", &Schedule::step_size, bit(ScheduleKind::step)},
}};
constexpr std::array<Field<double>, 5> kNumbers = {{
    {"final", "final_factor", &Schedule::final_factor, kToFinal},
    {"gamma", "gamma", &Schedule::gamma, kByGamma},
    {"pct", "pct_start", &Schedule::pct_start, bit(ScheduleKind::one_cycle)},
    {"div", "div_factor", &Schedule::div_factor, bit(ScheduleKind::one_cycle)},
    {"final_div", "final_div_factor", &Schedule::final_div_factor, bit(ScheduleKind::one_cycle)},
}};

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::invalid_argument, sentence);
}

template <class T>
[[noreturn]] void refuse_value(std::string_view field, T value, std::string_view expected) {
  refuse(fmt::format("schedule {} is {}, expected {}", field, value, expected));
}

template <class T, std::size_t N>
void refuse_unused(const Schedule& schedule, const std::array<Field<T>, N>& fields) {
  const Schedule defaults;
  for (const Field<T>& field : fields) {
    const T value = schedule.*field.member;
    if ((field.kinds & bit(schedule.kind)) || value == defaults.*field.member) continue;
    refuse_value(field.name, value,
                 fmt::format("its default {} because kind {} does not use it",
                             defaults.*field.member, to_string(schedule.kind)));
  }
}

void check_counts(const Schedule& s) {
  for (const auto& field : kCounts) {
    if (s.*field.member < 0) refuse_value(field.name, s.*field.member, "0 or more");
  }
  if ((kNeedsTotal & bit(s.kind)) && s.total_steps <= s.warmup_steps) {
    refuse_value("total_steps", s.total_steps,
                 fmt::format("more than warmup_steps, which is {}, for kind {}", s.warmup_steps,
                             to_string(s.kind)));
  }
  const int64_t most = s.total_steps - s.warmup_steps;
  if (s.kind == ScheduleKind::wsd && (s.decay_steps < 1 || s.decay_steps > most)) {
    refuse_value("decay_steps", s.decay_steps,
                 fmt::format("1 to {} (total_steps - warmup_steps)", most));
  }
  if (s.kind == ScheduleKind::step && s.step_size < 1) {
    refuse_value("step_size", s.step_size, "1 or more");
  }
}

void check_numbers(const Schedule& s) {
  for (const auto& field : kNumbers) {
    if (!std::isfinite(s.*field.member)) {
      refuse_value(field.name, s.*field.member, "a finite number");
    }
  }
  if (s.final_factor < 0) refuse_value("final_factor", s.final_factor, "0 or more");
  if (s.pct_start < 0 || s.pct_start > 1) refuse_value("pct_start", s.pct_start, "0 to 1");
  for (const auto& field : kNumbers) {
    const bool positive = field.name == "gamma" || field.name.ends_with("div_factor");
    if (positive && s.*field.member <= 0) {
      refuse_value(field.name, s.*field.member, "more than 0");
    }
  }
}

template <class T, std::size_t N>
void append_changed(std::string& text, const Schedule& schedule,
                    const std::array<Field<T>, N>& fields) {
  const Schedule defaults;
  for (const Field<T>& field : fields) {
    const T value = schedule.*field.member;
    if (value == defaults.*field.member) continue;
    const char separator = text.find(':') == std::string::npos ? ':' : ',';
    text += fmt::format("{}{}={}", separator, field.key, value);  // {} is the shortest exact form
  }
}

template <class T>
T parse_value(std::string_view key, std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) {
    refuse(fmt::format("schedule {} is '{}', expected {}", key, text,
                       std::is_integral_v<T> ? "a whole number of 64 bits" : "a number"));
  }
  return value;
}

// Whether key is one of fields; if so its value is set.
template <class T, std::size_t N>
bool set_field(Schedule& schedule, const std::array<Field<T>, N>& fields, std::string_view key,
               std::string_view value) {
  for (const Field<T>& field : fields) {
    if (field.key != key) continue;
    schedule.*field.member = parse_value<T>(key, value);
    return true;
  }
  return false;
}

std::string known_keys() {
  std::string keys;
  for (const auto& field : kCounts) keys += fmt::format("{} ", field.key);
  for (const auto& field : kNumbers) keys += fmt::format("{} ", field.key);
  keys.pop_back();
  return keys;
}

}  // namespace

double schedule_factor(const Schedule& schedule, int64_t k) {
  validate(schedule);
  if (k < 0) refuse(fmt::format("schedule step is {}, expected 0 or more", k));
  return detail::schedule_factor(detail::schedule_data(schedule), k);
}

void validate(const Schedule& schedule) {
  to_string(schedule.kind);  // refuses a kind that is none of the enumerators
  check_counts(schedule);
  check_numbers(schedule);
  refuse_unused(schedule, kCounts);
  refuse_unused(schedule, kNumbers);
}

std::string to_string(ScheduleKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  if (index >= kKindNames.size()) {
    refuse(fmt::format("schedule kind is number {}, expected 0 to {}", static_cast<int>(kind),
                       kKindNames.size() - 1));
  }
  return std::string(kKindNames[index]);
}

ScheduleKind schedule_kind(std::string_view name) {
  for (std::size_t i = 0; i < kKindNames.size(); ++i) {
    if (kKindNames[i] == name) return static_cast<ScheduleKind>(i);
  }
  refuse(
      fmt::format("schedule kind is '{}', expected one of {}", name, fmt::join(kKindNames, " ")));
}

std::string format(const Schedule& schedule) {
  std::string text = to_string(schedule.kind);
  append_changed(text, schedule, kCounts);
  append_changed(text, schedule, kNumbers);
  return text;
}

Schedule parse_schedule(std::string_view text) {
  Schedule schedule;
  const std::size_t colon = text.find(':');
  schedule.kind = schedule_kind(text.substr(0, colon));
  std::size_t next = colon == std::string_view::npos ? text.size() + 1 : colon + 1;
  std::set<std::string_view> seen;
  while (next <= text.size()) {
    const std::string_view item = text.substr(next, text.find(',', next) - next);
    next += item.size() + 1;
    const std::size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    if (equals == std::string_view::npos) {
      refuse(fmt::format("schedule field is '{}', expected key=value", item));
    }
    if (!seen.insert(key).second) {
      refuse(fmt::format("schedule '{}' has {} twice, expected it once", text, key));
    }
    const std::string_view value = item.substr(equals + 1);
    if (!set_field(schedule, kCounts, key, value) && !set_field(schedule, kNumbers, key, value)) {
      refuse(fmt::format("schedule field is '{}', expected one of {}", key, known_keys()));
    }
  }
  validate(schedule);
  return schedule;
}

}  // namespace gallop
