// SPDX-License-Identifier: MIT
#include <algorithm>

#include "lab/report_formats.h"

namespace gallop::lab {
namespace {

constexpr std::string_view kGap = "  ";
constexpr std::string_view kNoteLabel = "note: ";

// One terminal line: control characters would break the alignment or drive the terminal.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20U || c == 0x7F; }, ' ');
  return text;
}

std::string_view status_colour(std::string_view status) {
  if (status == "pass" || status == "ok") return "\x1b[32m";
  if (status == "fail") return "\x1b[31m";
  if (status == "skip") return "\x1b[33m";
  return {};
}

size_t column_width(const Column& column) {
  size_t width = text_width(column.name);
  for (const std::string& cell : column.cells) width = std::max(width, text_width(cell));
  return width;
}

std::vector<Column> terminal_columns(const Table& table) {
  std::vector<Column> columns = human_columns(table);
  for (Column& column : columns) {
    column.name = one_line(std::move(column.name));
    for (std::string& cell : column.cells) cell = one_line(std::move(cell));
  }
  return columns;
}

void append_line(std::string& out, const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) line += cell + std::string(kGap);
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + '\n';
}

// Colours the text only, not its padding, so that widths stay as they are.
std::string paint(const std::string& padded, const std::string& text) {
  const std::string_view colour = status_colour(text);
  if (colour.empty()) return padded;
  std::string painted = padded;
  return painted.replace(padded.find(text), text.size(), std::string(colour) + text + "\x1b[0m");
}

void append_notes(std::string& out, const std::vector<std::string>& notes) {
  if (!notes.empty()) out += '\n';
  for (const std::string& note : notes) {
    out += kNoteLabel;
    for (const char c : note) {
      out += c;
      if (c == '\n') out.append(kNoteLabel.size(), ' ');
    }
    out += '\n';
  }
}

}  // namespace

std::string render_table(const Table& table, bool colour) {
  const std::vector<Column> columns = terminal_columns(table);
  std::string out;
  if (!table.title.empty()) out += one_line(table.title) + "\n\n";

  std::vector<size_t> widths;
  std::vector<std::string> names;
  std::vector<std::string> rules;
  for (const Column& column : columns) {
    widths.push_back(column_width(column));
    names.push_back(pad(column.name, widths.back(), column.numeric));
    rules.emplace_back(widths.back(), '-');
  }
  if (!columns.empty()) {
    append_line(out, names);
    append_line(out, rules);
  }
  for (size_t row = 0; row < table.rows.size() && !columns.empty(); ++row) {
    std::vector<std::string> cells;
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string& cell = columns[i].cells[row];
      const std::string padded = pad(cell, widths[i], columns[i].numeric);
      cells.push_back(colour && columns[i].name == "status" ? paint(padded, cell) : padded);
    }
    append_line(out, cells);
  }
  if (table.rows.empty() || columns.empty()) out += "(no rows)\n";
  append_notes(out, table.notes);
  return out;
}

}  // namespace gallop::lab
