// SPDX-License-Identifier: MIT
// What lines that tell how far something has come need to know of stderr.
#pragma once

#include <cstddef>
#include <string>

namespace gallop::lab {

bool stderr_redraws();  // it is a terminal that can write over a line
size_t terminal_columns();
size_t terminal_rows();
// UTF-8 text after so many code points: a wrapped line could not be redrawn in place.
std::string cut(const std::string& text, size_t columns);
std::string clock_text(double seconds);  // "0:07", "12:34" or "1:02:03"

}  // namespace gallop::lab
