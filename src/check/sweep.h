// SPDX-License-Identifier: MIT
// Every rule, on every instruction set, in every format, at awkward sizes, against the reference.
#pragma once

#include <cstdint>
#include <regex>
#include <string>
#include <vector>

#include "gallop/optimizer.h"
#include "lab/row.h"

namespace gallop {
struct Rule;
}

namespace gallop::check {

// Throws when the text is no regular expression.
std::regex parse_pattern(const std::string& text);

struct Formats {
  DType param, grad;
  Rounding rounding;
  StateFormat state;
  Rounding state_rounding;
};

// Hyper-parameters with which a rule's result can be foretold.
Hyper judgeable(const Rule& rule);

std::string to_string(const Formats& f);
std::vector<Formats> all_formats();

struct SweepOptions {
  std::string only;                // regular expression, searched in the optimizer's name
  std::vector<std::string> names;  // instead of all optimizers
  std::vector<int64_t> sizes = {0, 1, 255, 256, 257, 1003, 1000003};
  std::vector<std::string> isas;  // empty: all that run here
  int threads = 0;
  Device device;
  Mode mode = Mode::multi;
  uint64_t seed = 1;
};

// One row per rule, variant and instruction set: status, cases, worst error over its bound.
lab::Table sweep(const SweepOptions& options);

}  // namespace gallop::check
