// SPDX-License-Identifier: MIT
// What a tuning run tries: texts such as lr=1e-4:1e-2:log,5 become grids, or a given number of
// trials.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gallop::lab {

enum class Scale {
  list,
  linear,
  log,
  log1m
};  // log1m: 1 - value is spread evenly in its logarithm

struct SearchRange {
  std::string name;  // in full: wd is weight_decay
  Scale scale = Scale::list;
  double low = 0, high = 0;  // of a list its first and last value
  std::vector<double>
      points;  // ascending from low to high, or a list as given; empty: none asked for
};

// NAME=LOW:HIGH[:log|linear|log1m][,POINTS], linear if not said, or NAME=VALUE[,VALUE...]. Ends are
// exact, points between are rounded to 12 digits: the same on every machine, and 1e-3 is 1e-3.
SearchRange parse_range(std::string_view text);

struct Setting {
  std::string name;
  double value = 0;

  friend bool operator==(const Setting&, const Setting&) = default;
};

using Settings = std::vector<Setting>;

// Every combination of the ranges' points, the last range varying fastest; one empty trial for
// none.
std::vector<Settings> grid(std::span<const SearchRange> ranges);

// `count` trials spread evenly over the ranges, whatever their points, and over lists by position:
// a Halton sequence whose digits the seed permutes. The first trials of a longer set are the
// shorter one.
std::vector<Settings> spread_trials(std::span<const SearchRange> ranges, size_t count,
                                    uint64_t seed);

// For people: three digits, 1e-3 or 0.000316, whole numbers from 100 on; below 1 three digits of
// the distance to it, 0.9995.
std::string brief(double value);

// lr=0.000316227766017 weight_decay=0: the shortest texts that read back as the same numbers.
std::string exact_text(const Settings& settings);

}  // namespace gallop::lab
