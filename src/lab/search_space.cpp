// SPDX-License-Identifier: MIT
#include "lab/search_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "core/random.h"
#include "gallop/error.h"

namespace gallop::lab {
namespace {

constexpr size_t kMostPoints = 1000;
constexpr size_t kMostTrials = 100000;
constexpr std::array<size_t, 12> kBases = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
constexpr std::pair<std::string_view, Scale> kScales[] = {
    {"linear", Scale::linear}, {"log", Scale::log}, {"log1m", Scale::log1m}};

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

[[noreturn]] void refuse_text(std::string_view text, std::string_view expected) {
  refuse(fmt::format("search range is '{}', expected {}", text, expected));
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end = text.find(separator); end != std::string_view::npos;
       end = text.find(separator)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

template <class T>
std::optional<T> read(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

double finite(std::string_view text, std::string_view word) {
  const std::optional<double> value = read<double>(word);
  if (value && std::isfinite(*value)) return *value;
  refuse_text(text, fmt::format("a number instead of '{}'", word));
}

double rounded(double value, int digits) {
  return *read<double>(fmt::format("{:.{}g}", value, digits));
}

double between(const SearchRange& range, double share) {
  if (range.scale == Scale::log1m) {
    const double far = 1 - range.low;
    const double rest = far * std::pow((1 - range.high) / far, share);
    return std::clamp(rounded(1 - rounded(rest, 12), 15), range.low, range.high);
  }
  const double value = range.scale == Scale::log
                           ? range.low * std::pow(range.high / range.low, share)
                           : range.low * (1 - share) + range.high * share;
  return std::clamp(rounded(value, 12), range.low, range.high);
}

void check_ends(const SearchRange& range, std::string_view text) {
  if (!(range.low < range.high)) refuse_text(text, "LOW:HIGH with LOW below HIGH");
  if (range.scale == Scale::log && range.low <= 0) refuse_text(text, "LOW above 0 for log");
  if (range.scale == Scale::log1m && range.high >= 1) refuse_text(text, "HIGH below 1 for log1m");
}

// What stands after the name: LOW:HIGH[:SCALE][,POINTS].
void parse_ends(SearchRange& range, std::string_view text, std::string_view values) {
  constexpr std::string_view kForm = "NAME=LOW:HIGH[:log|linear|log1m][,POINTS]";
  const auto halves = split(values, ',');
  const auto parts = split(halves[0], ':');
  if (halves.size() > 2 || parts.size() > 3) refuse_text(text, kForm);
  range.low = finite(text, parts[0]);
  range.high = finite(text, parts[1]);
  range.scale = Scale::linear;
  if (parts.size() == 3) {
    const auto* scale = std::find_if(std::begin(kScales), std::end(kScales),
                                     [&](const auto& known) { return known.first == parts[2]; });
    if (scale == std::end(kScales)) {
      refuse_text(text, fmt::format("log, linear or log1m instead of '{}'", parts[2]));
    }
    range.scale = scale->second;
  }
  check_ends(range, text);
  if (halves.size() == 1) return;
  const std::optional<size_t> count = read<size_t>(halves[1]);
  if (!count || *count < 2 || *count > kMostPoints) {
    refuse_text(text, fmt::format("2 to {} points instead of '{}'", kMostPoints, halves[1]));
  }
  range.points.push_back(range.low);
  for (size_t i = 1; i + 1 < *count; ++i) {
    range.points.push_back(
        between(range, static_cast<double>(i) / static_cast<double>(*count - 1)));
  }
  range.points.push_back(range.high);
}

void require_distinct_names(std::span<const SearchRange> ranges) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (ranges[i].name != ranges[j].name) continue;
      refuse(fmt::format("{} has 2 search ranges, expected one", ranges[i].name));
    }
  }
}

// Where `digit` goes among the digits of `base`, by a shuffle that only key decides.
size_t permuted(size_t digit, size_t base, uint64_t key) {
  std::array<size_t, kBases.back()> to{};
  std::iota(to.begin(), to.end(), size_t{0});
  for (size_t i = base - 1; i > 0; --i)
    std::swap(to[i], to[(combine(key, i) >> 32) * (i + 1) >> 32]);
  return to[digit];
}

// From 0 to below 1: the digits of `index` mirrored at the point, each place with a shuffle of its
// own.
double halton(size_t index, size_t base, uint64_t key) {
  double value = 0;
  double place = 1;
  for (uint64_t at = 0; place > 0x1p-50; ++at) {
    place /= static_cast<double>(base);
    value += place * static_cast<double>(permuted(index % base, base, combine(key, at)));
    index /= base;
  }
  return std::min(value, std::nextafter(1.0, 0.0));
}

}  // namespace

SearchRange parse_range(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos || equals + 1 == text.size()) {
    refuse_text(text, "NAME=LOW:HIGH[:log|linear|log1m][,POINTS] or NAME=VALUE[,VALUE...]");
  }
  SearchRange range;
  range.name = text.substr(0, equals);
  if (range.name == "wd") range.name = "weight_decay";
  const std::string_view values = text.substr(equals + 1);
  if (values.find(':') != std::string_view::npos) {
    parse_ends(range, text, values);
    return range;
  }
  for (const std::string_view word : split(values, ',')) {
    const double value = finite(text, word);
    if (std::find(range.points.begin(), range.points.end(), value) != range.points.end()) {
      refuse_text(text, fmt::format("'{}' once", word));
    }
    range.points.push_back(value);
  }
  range.low = range.points.front();
  range.high = range.points.back();
  return range;
}

std::vector<Settings> grid(std::span<const SearchRange> ranges) {
  require_distinct_names(ranges);
  std::vector<Settings> trials = {{}};
  for (const SearchRange& range : ranges) {
    if (range.points.empty()) {
      refuse(fmt::format("{} = {}:{} has 0 points, expected ',POINTS' for a grid", range.name,
                         range.low, range.high));
    }
    if (trials.size() * range.points.size() > kMostTrials) {
      refuse(fmt::format("grid has over {} trials with {}, expected no more", kMostTrials,
                         range.name));
    }
    std::vector<Settings> longer;
    for (const Settings& settings : trials) {
      for (const double value : range.points) {
        longer.push_back(settings);
        longer.back().push_back({range.name, value});
      }
    }
    trials = std::move(longer);
  }
  return trials;
}

std::vector<Settings> spread_trials(std::span<const SearchRange> ranges, size_t count,
                                    uint64_t seed) {
  require_distinct_names(ranges);
  if (ranges.size() > kBases.size()) {
    refuse(fmt::format("search has {} ranges, expected at most {}", ranges.size(), kBases.size()));
  }
  if (count > kMostTrials) {
    refuse(fmt::format("search has {} trials, expected at most {}", count, kMostTrials));
  }
  std::vector<Settings> trials(count);
  for (size_t i = 0; i < count; ++i) {
    for (size_t r = 0; r < ranges.size(); ++r) {
      const SearchRange& range = ranges[r];
      const double share = halton(i, kBases[r], combine(combine(0, seed), r));
      const auto at = static_cast<size_t>(share * static_cast<double>(range.points.size()));
      const double value = range.scale == Scale::list ? range.points[at] : between(range, share);
      trials[i].push_back({range.name, value});
    }
  }
  return trials;
}

std::string brief(double value) {
  if (value > 0.5 && value < 1) {
    const int decimals = 3 + static_cast<int>(-std::log10(1 - value));
    return fmt::format("{}", *read<double>(fmt::format("{:.{}f}", value, std::min(decimals, 16))));
  }
  if (std::fabs(value) >= 100 && std::fabs(value) < 1e6) return fmt::format("{:.0f}", value);
  std::string text = fmt::format("{:.3g}", value);
  if (std::fabs(value) < 0.01 && text.find('.') != std::string::npos) {
    const std::string power = fmt::format("{:.2e}", value);  // d.dde-dd
    const size_t e = power.find('e');
    if (power.substr(e - 3, 3) == ".00") text = power.substr(0, e - 3) + power.substr(e);
  }
  const size_t zero = text.find("e-0");
  return zero == std::string::npos ? text : text.erase(zero + 2, 1);
}

std::string exact_text(const Settings& settings) {
  std::string text;
  for (const Setting& setting : settings) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", setting.name, setting.value);
  }
  return text;
}

}  // namespace gallop::lab
