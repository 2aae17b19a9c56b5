// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lab/row.h"

// What the four formats share; callers outside the reporter use lab/report.h.
namespace gallop::lab {

std::string render_table(const Table& table, bool colour);
std::string render_markdown(const Table& table);
std::string render_csv(const Table& table);
std::string render_json(const Table& table);

// A value for people: four significant digits, thousands separators from 10,000 on, "-" for none.
std::string human_value(const Value& value);

// A column of human cells, ready to be laid out.
struct Column {
  std::string name;
  bool numeric = false;  // every value it has is a number
  std::vector<std::string> cells;
};

std::vector<Column> human_columns(const Table& table);

// Terminal cells that UTF-8 text takes, counted in code points.
size_t text_width(std::string_view text);

// Pads with spaces to the width, on the left when right-aligned.
std::string pad(std::string_view text, size_t width, bool right_aligned);

}  // namespace gallop::lab
