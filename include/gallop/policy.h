// SPDX-License-Identifier: MIT
// Which format each parameter's state has.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gallop/types.h"

namespace gallop {

struct Param;

// Parameters that fit all of it have state in this format.
struct StateRule {
  static constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

  StateFormat format = StateFormat::f32;
  std::string name = "*";  // * stands for any characters, ? for one
  std::optional<Role> role;
  int64_t size_from = 0, size_below = kAny;  // elements
  int64_t dims_from = 0, dims_below = kAny;

  bool fits(const Param& p) const;
};

// The first rule that fits decides; none: fp32.
struct StatePolicy {
  // Of formats that share scales, blocks of few elements save nothing: as elsewhere, parameters
  // under 4,096 elements stay fp32.
  static constexpr int64_t kSmall = 4096;

  StatePolicy(StateFormat format = StateFormat::f32);  // NOLINT(google-explicit-constructor)
  explicit StatePolicy(std::vector<StateRule> list) : rules(std::move(list)) {}

  // The same format for all parameters, small ones too.
  static StatePolicy all(StateFormat format);

  StateFormat choose(const Param& p) const;

  std::vector<StateRule> rules;
};

// CONDITION[&CONDITION...]=FORMAT, separated by commas; a condition is a role, size<N, size>=N,
// dims<N, dims>=N or a pattern of names. A FORMAT alone at the end is for all others, small ones
// left out as above; `hybrid` stands for embedding=fp32,norm=fp32,8bit.
StatePolicy parse_state_policy(std::string_view text);
std::string to_string(const StatePolicy& policy);  // what parse_state_policy takes

}  // namespace gallop
