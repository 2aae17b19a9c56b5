// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "gallop/error.h"
#include "optimizer/rule.h"
#include "rule_list.gen.h"

namespace gallop {

#define GALLOP_DECLARE(id) Rule make_rule_##id();
GALLOP_FOREACH_RULE(GALLOP_DECLARE)
#undef GALLOP_DECLARE

namespace {

using Registry = std::map<std::string, Rule, std::less<>>;

void add_rule(Registry& rules, const Rule& rule) {
  if (rule.info.knob("lr") < 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("rule '{}' has no knob 'lr', which every rule must have", rule.info.name));
  }
  if (rule.clip != nullptr && rule.info.knob("max_grad_norm") < 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("rule '{}' has a clip function but no knob 'max_grad_norm'", rule.info.name));
  }
  if (!rules.emplace(rule.info.name, rule).second) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a rule named '{}' exists already", rule.info.name));
  }
}

Registry& registry() {
  static Registry rules = [] {
    Registry built_in;
#define GALLOP_ADD(id) add_rule(built_in, make_rule_##id());
    GALLOP_FOREACH_RULE(GALLOP_ADD)
#undef GALLOP_ADD
    return built_in;
  }();
  return rules;
}

}  // namespace

void register_rule(const Rule& rule) { add_rule(registry(), rule); }

const Rule& find_rule(std::string_view name) {
  const auto it = registry().find(name);
  if (it != registry().end()) return it->second;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("optimizer '{}' is unknown, expected one of {}", name,
                          fmt::join(rule_names(), ", ")));
}

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const auto& [name, rule] : registry()) names.push_back(name);
  return names;
}

const RuleInfo& rule_info(std::string_view name) { return find_rule(name).info; }

int RuleInfo::knob(std::string_view wanted) const {
  for (size_t i = 0; i < knobs.size(); ++i) {
    if (knobs[i].name == wanted) return static_cast<int>(i);
  }
  return -1;
}

std::string describe_range(const KnobInfo& k) {
  if (!k.choices.empty()) return fmt::format("{}", fmt::join(k.choices, " or "));
  if (k.whole && k.low == 0 && k.high == 1) return "0 or 1";
  const std::string kind = k.whole ? "a whole number " : "";
  constexpr double kNoLimit = 1e15;
  if (k.low < -kNoLimit && k.high > kNoLimit) return "a finite number";
  if (k.whole && k.high < kNoLimit) return fmt::format("{}from {:g} to {:g}", kind, k.low, k.high);
  if (k.high >= kNoLimit) {
    return fmt::format("{}{} {:g}", kind, k.low_included ? "at least" : "above", k.low);
  }
  return fmt::format("{}in {}{:g}, {:g}{}", kind, k.low_included ? '[' : '(', k.low, k.high,
                     k.high_included ? ']' : ')');
}

unsigned Rule::present_states(const double* hyper) const {
  unsigned present = 0;
  for (size_t j = 0; j < info.states.size(); ++j) {
    const std::string& when = info.states[j].when;
    if (when.empty() || hyper[info.knob(when)] != 0) present |= 1u << j;
  }
  return present;
}

unsigned Rule::active_passes(const double* hyper, bool matrix) const {
  unsigned active = 0;
  for (size_t p = 0; p < passes.size(); ++p) {
    const auto set = [&](const char* knob) { return hyper[info.knob(knob)] != 0; };
    if (passes[p].when != nullptr && !set(passes[p].when)) continue;
    if (passes[p].unless != nullptr && set(passes[p].unless)) continue;
    const Only only = passes[p].only;
    if (only != Only::any && (only == Only::matrices) != matrix) continue;
    active |= 1u << p;
  }
  return active;
}

bool Rule::is_last(unsigned active, int pass) const {
  const Pass& p = passes[static_cast<size_t>(pass)];
  for (size_t later = static_cast<size_t>(pass) + 1; later < passes.size(); ++later) {
    const Pass& q = passes[later];
    const bool exclude =
        (p.if_zero >= 0 && p.if_zero == q.if_set) || (p.if_set >= 0 && p.if_set == q.if_zero);
    if ((active >> later & 1) != 0 && !exclude) return false;
  }
  return true;
}

bool Rule::decides() const {
  return std::any_of(passes.begin(), passes.end(),
                     [](const Pass& p) { return p.if_set >= 0 || p.if_zero >= 0; });
}

bool Rule::adds_up(int pass) const {
  return std::any_of(sums.begin(), sums.end(),
                     [&](const Sum& s) { return (s.passes >> pass & 1) != 0; });
}

bool Rule::adds_by_sides(int pass) const {
  return std::any_of(sums.begin(), sums.end(), [&](const Sum& s) {
    return s.over != Over::tensor && (s.passes >> pass & 1) != 0;
  });
}

int Rule::variant_of(unsigned present) const {
  int variant = 0, bit = 0;
  for (size_t j = 0; j < info.states.size(); ++j) {
    if (info.states[j].optional) variant |= static_cast<int>(present >> j & 1) << bit++;
  }
  return variant;
}

cpu::Kernel Rule::cpu_kernel(int isa, int entry, unsigned present, cpu::Path path) const {
  const int of_path = static_cast<int>(cpu::in_blocks(path) ? cpu::Path::blocks : path);
  const int index = (entry * (1 << optional_states) + variant_of(present)) * 3 + of_path;
  return cpu[static_cast<size_t>(isa)]->table[index];
}

}  // namespace gallop
