// SPDX-License-Identifier: MIT
// Questions about optimizers that are asked again and again, as defaults of a race's flags.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

namespace gallop::cli {

struct RacePreset {
  std::string name, about;
  std::vector<std::string> optimizers;
  int64_t steps = 0;
  int64_t trials = 0;                       // of each
  std::map<std::string, std::string> tune;  // by optimizer; others: their usual rates
};

std::span<const RacePreset> race_presets();
const RacePreset* find_preset(const std::string& name);  // null: there is none
std::string describe_presets();                          // for --help

}  // namespace gallop::cli
