// SPDX-License-Identifier: MIT
// Pieces of a page, as JSON for its script: tables and charts. What is computed, is computed here;
// the script only draws.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/row.h"
#include "lab/row_json.h"

namespace gallop::lab {

// Six digits, null for what is not finite.
Json figure_json(double value);

Json table_part(const Table& table);

// A median in an interval, and the values behind it.
struct Bar {
  std::string name;
  double middle = 0, low = 0, high = 0;
  std::vector<double> samples;
};
Json interval_part(const std::string& title, const std::string& unit, bool from_zero,
                   const std::vector<Bar>& bars);

// A line, within a band where it has one.
struct Curve {
  std::string name;
  std::vector<double> x, middle, low, high;
};
struct Axes {
  std::string x, y;
  bool log_x = false;
};
Json curve_part(const std::string& title, const Axes& axes, const std::vector<Curve>& curves,
                const std::string& note);

// What each of the rows has in its own configuration that others have not.
std::vector<std::string> labels_of(const std::vector<Row>& rows);

// Charts of what rows have the fields for; null where they have not.
Json memory_part(const std::vector<Row>& rows);    // by class, stacked
Json roofline_part(const std::vector<Row>& rows);  // times of steps over the bytes they move
Json heat_part(const std::vector<Row>& rows);      // of a grid: how much faster all at once is

// Of a race: its leaderboard's rows, and its trials' (see race_table.h).
std::vector<Json> race_parts(const Table& leaderboard, const std::vector<Row>& trials);

}  // namespace gallop::lab
