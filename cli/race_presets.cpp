// SPDX-License-Identifier: MIT
#include "cli/race_presets.h"

#include <fmt/format.h>

#include <algorithm>

namespace gallop::cli {

std::span<const RacePreset> race_presets() {
  static const std::vector<RacePreset> all = {
      {"lion-8bit-rate",
       "lion:8bit with rates from 1e-4 down to 3e-5 over 3,000 steps",
       {"lion:8bit"},
       3000,
       5,
       {{"lion", "lr=3e-5:1e-4:log,5"}}},
      // At 0 there is no beta2: each step has its own gradient alone. -0.8 is the paper's.
      {"adafactor-decay",
       "adafactor with decay_rate -1, -0.8, -0.5 and 0 (beta2 = 1 - t^decay_rate; 0: none) against "
       "adamw, over 1,000 steps; loss spikes are counted",
       {"adamw", "adafactor"},
       1000,
       4,
       {{"adafactor", "decay_rate=-1,-0.8,-0.5,0"}}}};
  return all;
}

const RacePreset* find_preset(const std::string& name) {
  const auto all = race_presets();
  const auto at =
      std::find_if(all.begin(), all.end(), [&](const auto& p) { return p.name == name; });
  return at == all.end() ? nullptr : &*at;
}

std::string describe_presets() {
  std::string out = "Defaults for a question:";
  for (const RacePreset& p : race_presets()) out += fmt::format("\n{}: {}", p.name, p.about);
  return out;
}

}  // namespace gallop::cli
