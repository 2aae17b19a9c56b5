// SPDX-License-Identifier: MIT
// Formats that share scales, by their definitions: in double, and without the code that is checked.
#include <algorithm>
#include <cmath>
#include <vector>

#include "check/data.h"

namespace gallop::check {
namespace {

// bitsandbytes' maps in order: decade e has its codes in the middles of equal parts of [0.1, 1]
// times 10^(e - 6).
std::vector<double> dynamic_map(bool nonneg) {
  std::vector<double> map = {0, 1};
  for (int e = 0; e < 7; ++e) {
    const int parts = 1 << (nonneg ? e + 1 : e);
    for (int k = 0; k < parts; ++k) {
      const double value = std::pow(10, e - 6) * (0.1 + 0.9 * (k + 0.5) / parts);
      map.push_back(value);
      if (!nonneg) map.push_back(-value);
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}
const std::vector<double>& map_of(bool nonneg) {
  static const std::vector<double> maps[] = {dynamic_map(false), dynamic_map(true)};
  return maps[nonneg ? 1 : 0];
}

double e4m3(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 128) != 0 ? -magnitude : magnitude;
}

// What code c of `most` stands for.
double power(double c, double most, bool nonneg) {
  return nonneg ? std::pow(c / most, 4) : std::copysign(std::pow(c / most, 2), c);
}

// The distance between the codes around |y|.
double gap(double y, double most, bool nonneg) {
  const double code = most * std::pow(std::abs(y), nonneg ? 0.25 : 0.5), blur = 1e-3;
  const double below = std::max(0.0, std::floor(code - blur)), above = std::ceil(code + blur);
  return power(above, most, nonneg) - power(below, most, nonneg);
}

double gap_e4m3(double y) {
  const double x = std::abs(y) * 448;
  return std::ldexp(1, std::max(-9, std::ilogb(std::max(x, 1e-30) * 1.0001) - 3)) / 448;
}

// Half the distance between a map's values around y, or the way to its end. Negative values never
// become zero.
double half_gap_of_map(double y, bool nonneg) {
  double below = -2, above = 2;
  for (double x : map_of(nonneg)) {
    if (x == 0 && std::signbit(y)) continue;
    if (x <= y) below = std::max(below, x);
    if (x >= y) above = std::min(above, x);
  }
  if (below == -2) return above - y;
  if (above == 2) return y - below;
  return std::signbit(y) && above > 0 ? y - below : (above - below) / 2;
}

}  // namespace

double read_state(const StateView& v, int64_t i) {
  if (v.block == 0) return read_element(v.data, v.dtype, i);
  const auto at = static_cast<size_t>(i);
  const auto* bytes = static_cast<const unsigned char*>(v.data);
  const double scale = v.scales[i / v.block];
  switch (v.format) {
    case StateFormat::q8:
      return scale * (v.nonneg ? power(bytes[at], 255, true)
                               : power(static_cast<signed char>(bytes[at]), 127, false));
    case StateFormat::bnb8:
      return scale * map_of(v.nonneg)[bytes[at]];
    case StateFormat::q4: {
      const int code = bytes[at / 2] >> (at % 2 * 4) & 15;
      return scale *
             (v.nonneg ? power(code, 15, true) : power(code < 8 ? code : code - 16, 7, false));
    }
    default:
      return scale * e4m3(bytes[at]) / 448;
  }
}

double stored_within(StateFormat format, bool nonneg, double x, double scale) {
  if (scale == 0) return 0x1p-126;
  const double y = std::clamp(x / scale, -1.0, 1.0), slack = 1e-5;
  const double distance = format == StateFormat::q8     ? gap(y, nonneg ? 255 : 127, nonneg)
                          : format == StateFormat::q4   ? gap(y, nonneg ? 15 : 7, nonneg)
                          : format == StateFormat::bnb8 ? half_gap_of_map(y, nonneg)
                                                        : gap_e4m3(y);
  return scale * (distance * (1 + slack) + 1e-6 * std::abs(y));
}

}  // namespace gallop::check
