// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "gallop/error.h"
#include "optimizer/rule.h"
#include "rule_list.gen.h"

namespace gallop {

#define GALLOP_DECLARE(id) Rule make_rule_##id();
GALLOP_FOREACH_RULE(GALLOP_DECLARE)
#undef GALLOP_DECLARE

namespace {

using Rules = std::map<std::string, std::unique_ptr<const Rule>, std::less<>>;

void add_rule(Rules& rules, Rule rule) {
  const std::string name = rule.info.name;
  if (!rules.emplace(name, std::make_unique<const Rule>(std::move(rule))).second) {
    throw Error(ErrorCode::invalid_argument, fmt::format("a rule named '{}' exists already", name));
  }
}

// Rules may be added at any time; references to them stay good.
struct Registry {
  std::mutex mutex;
  Rules rules;
  std::vector<std::unique_ptr<const Rule>> replaced;

  Registry() {
#define GALLOP_ADD(id) add_rule(rules, make_rule_##id());
    GALLOP_FOREACH_RULE(GALLOP_ADD)
#undef GALLOP_ADD
  }
};

Registry& registry() {
  static Registry all;
  return all;
}

}  // namespace

void register_rule(Rule rule) {
  const std::lock_guard lock(registry().mutex);
  add_rule(registry().rules, std::move(rule));
}

void replace_rule(Rule rule) {
  const std::lock_guard lock(registry().mutex);
  std::unique_ptr<const Rule>& at = registry().rules[rule.info.name];
  if (at != nullptr) registry().replaced.push_back(std::move(at));
  at = std::make_unique<const Rule>(std::move(rule));
}

const Rule* find_rule_if(std::string_view name) {
  const std::lock_guard lock(registry().mutex);
  const auto it = registry().rules.find(name);
  return it == registry().rules.end() ? nullptr : it->second.get();
}

const Rule& find_rule(std::string_view name) {
  if (const Rule* rule = find_rule_if(name)) return *rule;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("optimizer '{}' is unknown, expected one of {}", name,
                          fmt::join(rule_names(), ", ")));
}

std::vector<std::string> rule_names() {
  const std::lock_guard lock(registry().mutex);
  std::vector<std::string> names;
  for (const auto& [name, rule] : registry().rules) names.push_back(name);
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

}  // namespace gallop
