// SPDX-License-Identifier: MIT
#include "lab/hardware.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "gallop/error.h"

namespace gallop::lab {

std::vector<Hardware> known_gpus() {
  constexpr double kShareOfStated = 4.24 / 4.8;  // of a copy on an H200, measured
  const auto card = [](const char* name, int64_t mib, double gb_s, double t16, double tf32,
                       double t32) {
    return Hardware{
        name,       true,        mib << 20,  gb_s * 1e9 * kShareOfStated,
        t16 * 1e12, tf32 * 1e12, t32 * 1e12, "as its maker states them, a copy at 88 %"};
  };
  std::vector<Hardware> all = {
      card("h200", 143771, 4800, 989.5, 494.7, 67), card("h100", 81559, 3350, 989.5, 494.7, 67),
      card("a100", 81920, 2039, 312, 156, 19.5),    card("l40s", 46068, 864, 362, 183, 91.6),
      card("l4", 23034, 300, 121, 60, 30.3),        card("rtx4090", 24564, 1008, 165.2, 82.6, 82.6),
      card("rtx3090", 24576, 936, 71, 35.6, 35.6)};
  all[0].source = "the copy as measured, products as its maker states them";
  return all;
}

Hardware find_gpu(std::string_view name) {
  std::vector<std::string> names;
  for (Hardware& gpu : known_gpus()) {
    if (gpu.name == name) return gpu;
    names.push_back(std::move(gpu.name));
  }
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("no figures of a GPU '{}', expected one of {}", name, fmt::join(names, ", ")));
}

int64_t parse_bytes(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
                             {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  std::string_view unit(at, static_cast<size_t>(end - at));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const Unit& u : kUnits) {
    const double bytes = value * u.bytes;
    if (error == std::errc() && unit == u.name && bytes >= 1 && bytes < 0x1p60) {
      return static_cast<int64_t>(bytes);
    }
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("memory '{}', expected a number above 0 and MB, GB, TB, MiB, GiB or TiB, "
                          "such as 24GB",
                          text));
}

}  // namespace gallop::lab
