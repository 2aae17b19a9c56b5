// SPDX-License-Identifier: MIT
#include <algorithm>

#include "lab/report_formats.h"

namespace gallop::lab {
namespace {

constexpr size_t kNarrowest = 3;  // the shortest alignment cell that every renderer takes

// Cells are plain text, so whatever Markdown or HTML would act on is escaped.
std::string escape_cell(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    if (c == '\n' || c == '\r') {
      out += "<br>";
      continue;
    }
    if (c == '|' || c == '\\' || c == '<' || c == '*' || c == '`') out += '\\';
    out += c;
  }
  return out;
}

std::string join_lines(std::string_view text, std::string_view separator) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += separator;
    } else if (c != '\r') {
      out += c;
    }
  }
  return out;
}

std::string rule(size_t width, bool numeric) {
  const std::string dashes(width - 1, '-');
  return numeric ? dashes + ':' : ':' + dashes;
}

}  // namespace

std::string render_markdown(const Table& table) {
  std::string out;
  if (!table.title.empty()) out += "### " + join_lines(table.title, " ") + "\n\n";

  std::string head = "|";
  std::string align = "|";
  std::vector<std::string> lines(table.rows.size(), "|");
  const std::vector<Column> columns = human_columns(table);
  for (const Column& column : columns) {
    const std::string name = escape_cell(column.name);
    size_t width = std::max(kNarrowest, text_width(name));
    for (const std::string& cell : column.cells) {
      width = std::max(width, text_width(escape_cell(cell)));
    }
    head += ' ' + pad(name, width, column.numeric) + " |";
    align += ' ' + rule(width, column.numeric) + " |";
    for (size_t row = 0; row < lines.size(); ++row) {
      lines[row] += ' ' + pad(escape_cell(column.cells[row]), width, column.numeric) + " |";
    }
  }
  if (!columns.empty()) {
    out += head + '\n' + align + '\n';
    for (const std::string& line : lines) out += line + '\n';
  }
  if (columns.empty() || table.rows.empty()) {
    if (!columns.empty()) out += '\n';  // else the line would become a row
    out += "No rows.\n";
  }
  if (!table.notes.empty()) out += '\n';
  for (const std::string& note : table.notes) out += "- " + join_lines(note, "\n  ") + '\n';
  return out;
}

}  // namespace gallop::lab
