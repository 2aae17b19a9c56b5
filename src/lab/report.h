// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "lab/row.h"

namespace gallop::lab {

enum class Format { table, markdown, csv, json };

Format parse_format(std::string_view name);

// table and markdown round numbers for people; csv and json keep every digit. Only the table
// format uses colour.
std::string render(const Table& table, Format format, bool colour);

// An empty path is stdout, in colour when that is a terminal and NO_COLOR is unset; any other path
// is written atomically.
void emit(const Table& table, Format format, const std::string& out_path);

}  // namespace gallop::lab
