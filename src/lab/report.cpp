// SPDX-License-Identifier: MIT
#include "lab/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gallop/error.h"
#include "io/atomic_file.h"
#include "lab/report_formats.h"

namespace gallop::lab {

Format parse_format(std::string_view name) {
  if (name == "table") return Format::table;
  if (name == "markdown") return Format::markdown;
  if (name == "csv") return Format::csv;
  if (name == "json") return Format::json;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("unknown output format '{}', expected table, markdown, csv or json", name));
}

std::string render(const Table& table, Format format, bool colour) {
  switch (format) {
    case Format::table:
      return render_table(table, colour);
    case Format::markdown:
      return render_markdown(table);
    case Format::csv:
      return render_csv(table);
    case Format::json:
      return render_json(table);
  }
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("output format number {} is unknown, expected 0 to 3", static_cast<int>(format)));
}

void emit(const Table& table, Format format, const std::string& out_path) {
  if (!out_path.empty()) {
    io::write_file_atomically(out_path, render(table, format, false));
    return;
  }
  const bool colour = isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  const std::string text = render(table, format, colour);
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw Error(ErrorCode::io, fmt::format("writing {} bytes to standard output failed ({}), "
                                           "expected it to be open and not full",
                                           text.size(), std::strerror(errno)));
  }
}

}  // namespace gallop::lab
