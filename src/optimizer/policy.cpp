// SPDX-License-Identifier: MIT
#include "gallop/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "gallop/error.h"
#include "gallop/optimizer.h"

namespace gallop {
namespace {

constexpr std::string_view kHybrid = "embedding=fp32,norm=fp32,8bit";
constexpr std::string_view kRoles[] = {"other", "embedding", "norm", "bias", "head", "hidden"};

bool shares_scales(StateFormat f) { return f != StateFormat::f32 && f != StateFormat::bf16; }

bool matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, resumed = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resumed = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {  // the last * takes one character more
      p = star + 1;
      t = ++resumed;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

[[noreturn]] void refuse(std::string_view part, std::string_view why) {
  throw Error(ErrorCode::invalid_argument, fmt::format("state policy '{}': {}", part, why));
}

// "size<4096" or "dims>=2"; false if it is neither.
bool parse_bounds(std::string_view text, StateRule& rule) {
  for (std::string_view what : {"size", "dims"}) {
    if (text.substr(0, what.size()) != what) continue;
    const std::string_view rest = text.substr(what.size());
    const bool below = rest.substr(0, 1) == "<" && rest.substr(0, 2) != "<=";
    if (!below && rest.substr(0, 2) != ">=") continue;
    const std::string_view digits = rest.substr(below ? 1 : 2);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
    if (error != std::errc() || end != digits.end() || number < 0) {
      refuse(text, fmt::format("'{}' is not a number, expected a whole one from 0", digits));
    }
    int64_t& bound = what == "size" ? (below ? rule.size_below : rule.size_from)
                                    : (below ? rule.dims_below : rule.dims_from);
    bound = number;
    return true;
  }
  return false;
}

void parse_condition(std::string_view text, StateRule& rule) {
  if (text.empty()) {
    refuse(text, "a condition is empty, expected a role, size<N, dims<N or a pattern of names");
  }
  if (parse_bounds(text, rule)) return;
  if (text.find_first_of("<>") != std::string_view::npos) {
    refuse(text, "a bound is none of size<N, size>=N, dims<N and dims>=N");
  }
  if (std::find(std::begin(kRoles), std::end(kRoles), text) != std::end(kRoles)) {
    rule.role = parse_role(text);
  } else {
    rule.name = text;
  }
}

// Where a rule's condition ends: at the last =, since >= has one too.
StateRule parse_rule(std::string_view text) {
  const size_t equals = text.rfind('=');
  StateRule rule;
  rule.format = parse_state_format(text.substr(equals + 1));
  std::string_view conditions = text.substr(0, equals);
  while (true) {
    const size_t both = conditions.find('&');
    parse_condition(conditions.substr(0, both), rule);
    if (both == std::string_view::npos) return rule;
    conditions.remove_prefix(both + 1);
  }
}

}  // namespace

bool StateRule::fits(const Param& p) const {
  int64_t size = 1;
  for (int64_t d : p.shape) size *= d;
  const auto dims = static_cast<int64_t>(p.shape.size());
  return matches(name, p.name) && (!role || *role == p.role) && size >= size_from &&
         size < size_below && dims >= dims_from && dims < dims_below;
}

StatePolicy::StatePolicy(StateFormat format) {
  if (shares_scales(format)) {
    rules.emplace_back();
    rules.back().size_below = kSmall;
  }
  rules.emplace_back();
  rules.back().format = format;
}

StatePolicy StatePolicy::all(StateFormat format) {
  StateRule rule;
  rule.format = format;
  return StatePolicy(std::vector{rule});
}

StateFormat StatePolicy::choose(const Param& p) const {
  for (const StateRule& rule : rules) {
    if (rule.fits(p)) return rule.format;
  }
  return StateFormat::f32;
}

StatePolicy parse_state_policy(std::string_view text) {
  if (text == "hybrid") text = kHybrid;
  StatePolicy policy{std::vector<StateRule>{}};
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    if (part.find('=') == std::string_view::npos) {
      if (comma != std::string_view::npos) {
        refuse(part, "a format without a condition is for all others, expected it at the end");
      }
      for (StateRule& rule : StatePolicy(parse_state_format(part)).rules) {
        policy.rules.push_back(std::move(rule));
      }
    } else {
      policy.rules.push_back(parse_rule(part));
    }
    if (comma == std::string_view::npos) return policy;
    text.remove_prefix(comma + 1);
  }
}

std::string to_string(const StatePolicy& policy) {
  std::vector<std::string> parts;
  for (const StateRule& r : policy.rules) {
    std::vector<std::string> conditions;
    if (r.name != "*") conditions.push_back(r.name);
    if (r.role) conditions.emplace_back(to_string(*r.role));
    if (r.size_from > 0) conditions.push_back(fmt::format("size>={}", r.size_from));
    if (r.size_below != StateRule::kAny) {
      conditions.push_back(fmt::format("size<{}", r.size_below));
    }
    if (r.dims_from > 0) conditions.push_back(fmt::format("dims>={}", r.dims_from));
    if (r.dims_below != StateRule::kAny) {
      conditions.push_back(fmt::format("dims<{}", r.dims_below));
    }
    if (conditions.empty()) conditions.emplace_back("*");
    parts.push_back(fmt::format("{}={}", fmt::join(conditions, "&"), to_string(r.format)));
  }
  // What a format alone stands for is written as that.
  for (StateFormat f : {StateFormat::f32, StateFormat::bf16}) {
    if (parts.size() == 1 && parts[0] == fmt::format("*={}", to_string(f))) {
      return std::string(to_string(f));
    }
  }
  return fmt::format("{}", fmt::join(parts, ","));
}

}  // namespace gallop
