// SPDX-License-Identifier: MIT
#include "gallop/types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>

#include "gallop/error.h"

namespace gallop {
namespace {

constexpr std::array<std::string_view, 4> kDTypes = {"fp32", "bf16", "fp16", "fp64"};
constexpr std::array<std::string_view, 4> kRoundings = {"nearest", "stochastic", "master",
                                                        "remainder"};
constexpr std::array<std::string_view, 6> kStateFormats = {"fp32",     "bf16", "8bit",
                                                           "8bit-bnb", "4bit", "fp8"};
constexpr std::array<std::string_view, 4> kModes = {"unfused", "single", "multi", "compiled"};
constexpr std::array<std::string_view, 6> kRoles = {"other", "embedding", "norm",
                                                    "bias",  "head",      "hidden"};

template <class Enum, size_t N>
Enum parse(std::string_view what, const std::array<std::string_view, N>& names,
           std::string_view text) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
  }
  throw Error(ErrorCode::invalid_argument, fmt::format("{} '{}' is unknown, expected one of {}",
                                                       what, text, fmt::join(names, ", ")));
}

}  // namespace

size_t size_of(DType t) { return t == DType::f64 ? 8 : t == DType::f32 ? 4 : 2; }

std::string_view to_string(DType t) { return kDTypes[static_cast<size_t>(t)]; }
std::string_view to_string(Rounding r) { return kRoundings[static_cast<size_t>(r)]; }
std::string_view to_string(StateFormat f) { return kStateFormats[static_cast<size_t>(f)]; }
std::string_view to_string(Mode m) { return kModes[static_cast<size_t>(m)]; }
std::string_view to_string(Role r) { return kRoles[static_cast<size_t>(r)]; }

DType parse_dtype(std::string_view s) { return parse<DType>("dtype", kDTypes, s); }
Rounding parse_rounding(std::string_view s) { return parse<Rounding>("rounding", kRoundings, s); }
StateFormat parse_state_format(std::string_view s) {
  return parse<StateFormat>("state format", kStateFormats, s);
}
Mode parse_mode(std::string_view s) { return parse<Mode>("mode", kModes, s); }
Role parse_role(std::string_view s) { return parse<Role>("role", kRoles, s); }

std::string to_string(Device d) {
  return d.kind == Device::Kind::cpu ? "cpu" : fmt::format("cuda:{}", d.index);
}

Device parse_device(std::string_view s) {
  if (s == "cpu") return {};
  if (s == "cuda") return {Device::Kind::cuda, 0};
  int index = 0;
  constexpr std::string_view kPrefix = "cuda:";
  if (s.substr(0, kPrefix.size()) == kPrefix) {
    const char *first = s.data() + kPrefix.size(), *last = s.data() + s.size();
    const auto [end, error] = std::from_chars(first, last, index);
    if (error == std::errc() && end == last && index >= 0) return {Device::Kind::cuda, index};
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("device '{}' is unknown, expected cpu, cuda or cuda:NUMBER", s));
}

}  // namespace gallop
