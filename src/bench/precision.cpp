// SPDX-License-Identifier: MIT
#include "bench/precision.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "bench/statistics.h"
#include "core/convert.h"
#include "gallop/error.h"

namespace gallop::bench {
namespace {

struct Format16 {
  const char* name;
  float (*decode)(Half);
  Half (*nearest)(float);

  // fp32 has more than twice their bits: rounding its sum is rounding the exact one.
  Half add(Half a, Half b) const { return nearest(decode(a) + decode(b)); }
  Half subtract(Half a, Half b) const { return nearest(decode(a) - decode(b)); }
};

constexpr Format16 kF16{"fp16", from_f16, to_f16_nearest};
constexpr Format16 kBf16{"bf16", from_bf16, to_bf16_nearest};

struct Compensated {
  Half sum, excess;  // excess: what the sum has too much
  bool operator==(const Compensated&) const = default;
};

struct Remaindered {
  SplitFloat parts;
  float value() const { return join_float(parts.bf16, parts.remainder); }
  bool operator==(const Remaindered& o) const { return value() == o.value(); }
};

// ---- one arithmetic after the other ----

struct Outcome {
  double result = 0;                     // the mean where chance decides
  std::optional<double> spread;          // standard deviation over seeds
  std::optional<int64_t> stalled_after;  // additions; none of the rest changed anything
};

template <typename T>
struct Last {
  T state;
  std::optional<int64_t> stalled_after;
};

// The same addition again and again: once it changes nothing it never will.
template <typename T, typename Add>
Last<T> repeat(T state, int64_t count, Add add) {
  for (int64_t i = 0; i < count; ++i) {
    const T next = add(state);
    if (next == state) return {state, i};
    state = next;
  }
  return {state, std::nullopt};
}

template <typename T>
Outcome plain(T start, T value, int64_t count) {
  const auto last = repeat(start, count, [&](T sum) { return sum + value; });
  return {.result = last.state, .spread = {}, .stalled_after = last.stalled_after};
}

Outcome stored(const Format16& f, float start, float value, int64_t count) {
  const auto last =
      repeat(f.nearest(start), count, [&](Half sum) { return f.nearest(f.decode(sum) + value); });
  return {.result = f.decode(last.state), .spread = {}, .stalled_after = last.stalled_after};
}

// Kahan's, every operation in 16 bits.
Outcome compensated(const Format16& f, Half value, int64_t count) {
  const auto last = repeat(Compensated{}, count, [&](const Compensated& s) {
    const Half wanted = f.subtract(value, s.excess), sum = f.add(s.sum, wanted);
    return Compensated{sum, f.subtract(f.subtract(sum, s.sum), wanted)};
  });
  return {.result = f.decode(last.state.sum), .spread = {}, .stalled_after = last.stalled_after};
}

Outcome with_remainder(float start, float value, int64_t count) {
  const auto last = repeat(Remaindered{split_float(start)}, count, [&](const Remaindered& s) {
    return Remaindered{split_float(s.value() + value)};
  });
  return {.result = last.state.value(), .spread = {}, .stalled_after = last.stalled_after};
}

Outcome stochastic(const PrecisionOptions& o, float start, float value) {
  std::vector<double> results;
  for (int run = 0; run < o.seeds; ++run) {
    const Bits64 key = combine(0, o.seed + static_cast<uint64_t>(run));
    Half sum = to_bf16_nearest(start);
    for (int64_t i = 0; i < o.count; ++i) {
      const Bits32 random16 = lane_bits(block_key(key, static_cast<Bits64>(i)), 0);
      sum = to_bf16_stochastic(from_bf16(sum) + value, random16);
    }
    results.push_back(from_bf16(sum));
  }
  return {.result = mean(results), .spread = stddev(results), .stalled_after = {}};
}

// ---- rows ----

// As torch prints a tensor of one element.
std::string printed(double x) {
  if (std::isnan(x)) return "nan";
  const double size = std::fabs(x);
  const bool short_enough = x == 0 || (size >= 1e-4 && size < 1e8) || !std::isfinite(x);
  return short_enough ? fmt::format("{:.4f}", x) : fmt::format("{:.4e}", x);
}

struct Test {
  const char* name;
  double start, added;
};

lab::Row row(const PrecisionOptions& o, const Test& t, const char* arithmetic, const Outcome& got) {
  const double change = t.added * static_cast<double>(o.count), exact = t.start + change;
  const double error = got.result - exact;
  lab::Row r;
  r.set("test", t.name).set("start", t.start).set("added", t.added).set("count", o.count);
  r.set("arithmetic", arithmetic).end_config().set("printed", printed(got.result));
  r.set("result", got.result).set("exact", exact);
  r.set("relative_error", exact == 0 ? lab::Value() : lab::Value(error / std::fabs(exact)));
  r.set("percent_of_change", 100 * (got.result - t.start) / change);
  r.set("stalled_after", got.stalled_after ? lab::Value(*got.stalled_after) : lab::Value());
  if (got.spread) {
    r.set("seeds", o.seeds).set("spread", *got.spread);
    if (*got.spread > 0) {
      r.set("standard_errors", error / (*got.spread / std::sqrt(static_cast<double>(o.seeds))));
    }
  }
  return r;
}

void add_sum(const PrecisionOptions& o, lab::Table& table) {
  const Test test{"sum", 0, o.value};
  const auto value = static_cast<float>(o.value);
  const Half f16 = to_f16_nearest(value), bf16 = to_bf16_nearest(value);
  const int64_t n = o.count;
  const auto add = [&](const char* arithmetic, const Outcome& got) {
    table.rows.push_back(row(o, test, arithmetic, got));
  };
  const auto mixed = repeat(0.0f, n, [&](float sum) { return sum + from_f16(f16); });
  add("fp64", plain(0.0, o.value, n));
  add("fp32", plain(0.0f, value, n));
  add("fp16", stored(kF16, 0, from_f16(f16), n));
  add("fp32 += fp16", {.result = mixed.state, .spread = {}, .stalled_after = mixed.stalled_after});
  add("fp32 += fp16, upcast first", plain(0.0f, from_f16(f16), n));
  add("fp16, Kahan", compensated(kF16, f16, n));
  add("bf16", stored(kBf16, 0, from_bf16(bf16), n));
  add("bf16, stochastic", stochastic(o, 0, from_bf16(bf16)));
  add("fp32 += bf16", plain(0.0f, from_bf16(bf16), n));
  add("bf16, Kahan", compensated(kBf16, bf16, n));
}

void add_parameter(const PrecisionOptions& o, double update, lab::Table& table) {
  const Test test{"parameter", o.start, update};
  const auto start = static_cast<float>(o.start), value = static_cast<float>(update);
  const auto add = [&](const char* arithmetic, const Outcome& got) {
    table.rows.push_back(row(o, test, arithmetic, got));
  };
  add("fp32", plain(start, value, o.count));
  add("fp16", stored(kF16, start, value, o.count));
  add("bf16", stored(kBf16, start, value, o.count));
  add("bf16, stochastic", stochastic(o, start, value));
  add("bf16 + remainder", with_remainder(start, value, o.count));
}

// ---- notes: what the rows say ----

std::string text_of(const lab::Row& r, const char* name) {
  return std::get<std::string>(*r.find(name));
}
double number_of(const lab::Row& r, const char* name) { return std::get<double>(*r.find(name)); }

std::string in_format(const Format16& f, double value) {
  const double held = f.decode(f.nearest(static_cast<float>(value)));
  if (held == value) return fmt::format("itself in {}", f.name);
  if (std::isinf(held)) return fmt::format("beyond {}", f.name);
  return fmt::format("{:.8g} in {}, {:.3g} of it off", held, f.name,
                     std::fabs(held - value) / std::fabs(value));
}

void note_stalls(const lab::Table& table, std::vector<std::string>& notes) {
  std::vector<std::string> sums, fp16, bf16;
  for (const lab::Row& r : table.rows) {
    const auto* after = std::get_if<int64_t>(r.find("stalled_after"));
    if (after == nullptr) continue;
    const std::string arithmetic = text_of(r, "arithmetic");
    if (text_of(r, "test") == "sum") {
      if (!std::isfinite(number_of(r, "result"))) continue;
      sums.push_back(fmt::format("{} stops at {:.6g} after {} additions", arithmetic,
                                 number_of(r, "result"), *after));
    } else if (*after == 0 && (arithmetic == kF16.name || arithmetic == kBf16.name)) {
      (arithmetic == kF16.name ? fp16 : bf16).push_back(fmt::format("{:g}", number_of(r, "added")));
    }
  }
  if (!sums.empty()) notes.push_back(fmt::format("the sum in {}", fmt::join(sums, "; in ")));
  for (const auto& [name, updates] : {std::pair(kF16.name, fp16), std::pair(kBf16.name, bf16)}) {
    if (updates.empty()) continue;
    notes.push_back(fmt::format("rounded to nearest, a parameter in {} is never moved by {}", name,
                                fmt::join(updates, ", ")));
  }
}

void note_chance(const PrecisionOptions& o, const lab::Table& table,
                 std::vector<std::string>& notes) {
  double most = -1;
  for (const lab::Row& r : table.rows) {
    if (r.find("standard_errors") == nullptr) continue;
    most = std::fmax(most, std::fabs(number_of(r, "standard_errors")));
  }
  if (most >= 0) {
    notes.push_back(
        fmt::format("stochastic rounding: means of {} seeds, at most {:.1f} standard "
                    "errors from exact; spread is one run's standard deviation",
                    o.seeds, most));
  }
}

void note_remainder(const lab::Table& table, std::vector<std::string>& notes) {
  int cases = 0, same = 0;
  double fp32 = 0;
  for (const lab::Row& r : table.rows) {
    if (text_of(r, "arithmetic") == "fp32") fp32 = number_of(r, "result");
    if (text_of(r, "arithmetic") != "bf16 + remainder") continue;
    ++cases;
    if (number_of(r, "result") == fp32) ++same;
  }
  if (cases > 0) {
    notes.push_back(
        fmt::format("bf16 + remainder ends at fp32's bits for {} of {} updates", same, cases));
  }
}

// ---- arguments ----

// Leaves room for 1e7 additions within fp32.
void require_number(const char* what, double x) {
  const double size = std::fabs(x);
  if (size >= 1e-30 && size <= 1e30) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} is {}, expected a number of size 1e-30 to 1e30", what, x));
}

void require(const PrecisionOptions& o) {
  constexpr int64_t kMostCount = 10'000'000, kMostDrawn = 1'000'000'000;
  constexpr int kMostSeeds = 10'000;
  require_number("the value to add", o.value);
  require_number("the parameter's start", o.start);
  for (const double update : o.updates) require_number("an update", update);
  if (o.count < 1 || o.count > kMostCount) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("count is {}, expected 1 to {} additions", o.count, kMostCount));
  }
  if (o.seeds < 1 || o.seeds > kMostSeeds) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("seeds is {}, expected 1 to {} runs", o.seeds, kMostSeeds));
  }
  if (o.count * o.seeds > kMostDrawn) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} additions for each of {} seeds, expected at most {} together",
                            o.count, o.seeds, kMostDrawn));
  }
}

}  // namespace

lab::Table precision(const PrecisionOptions& o) {
  require(o);
  lab::Table table;
  table.title = fmt::format("{:g} added {} times to 0, and updates to a parameter of {:g}", o.value,
                            o.count, o.start);
  table.columns = {"test",    "added",          "arithmetic",
                   "printed", "relative_error", "percent_of_change",
                   "spread",  "stalled_after"};
  add_sum(o, table);
  for (const double update : o.updates) add_parameter(o, update, table);
  table.notes.push_back(
      fmt::format("{:g} is {}; {}", o.value, in_format(kF16, o.value), in_format(kBf16, o.value)));
  note_stalls(table, table.notes);
  note_chance(o, table, table.notes);
  note_remainder(table, table.notes);
  return table;
}

}  // namespace gallop::bench
