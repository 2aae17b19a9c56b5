// SPDX-License-Identifier: MIT
#include "optimizer/rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "gallop/error.h"
#include "jit/rule_file.h"

namespace gallop {
namespace {

std::vector<std::string> split_choices(const char* text) {
  std::vector<std::string> out;
  for (std::string rest = text == nullptr ? "" : text; !rest.empty();) {
    const size_t bar = rest.find('|');
    out.push_back(rest.substr(0, bar));
    rest = bar == std::string::npos ? "" : rest.substr(bar + 1);
  }
  return out;
}

RuleInfo info_of(const RuleData& data) {
  RuleInfo info{data.name, data.about, data.formula, {}, {}, {}, {}, data.counts_per_group};
  for (const KnobData& k : data.knobs) {
    info.knobs.push_back({k.name, k.help, k.value, k.range.low, k.range.high, k.range.low_included,
                          k.range.high_included, k.range.whole, split_choices(k.choices)});
  }
  for (const State& s : data.states) {
    info.states.push_back(
        {s.name, s.sign == Sign::nonneg, s.exact || s.per != Per::element, s.when ? s.when : "",
         static_cast<StatePer>(s.per), s.only != Only::vectors,
         s.only != Only::matrices && s.per == Per::element, s.optional(), s.scratch, s.basis});
  }
  for (const Entry& e : data.entries) info.entries.emplace_back(e.name);
  info.keeps_dims = data.keeps_dims;
  for (const char* s : data.scalar_names) info.scalars.emplace_back(s);
  return info;
}

[[noreturn]] void wrong(const Rule& rule, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("rule '{}' {}", rule.info.name, what));
}

// What a compiler does not see.
void check_rule(const Rule& rule) {
  const RuleInfo& info = rule.info;
  if (info.name.empty() ||
      info.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos) {
    wrong(rule, "has a name of other characters than a-z, 0-9 and _");
  }
  if (info.knob("lr") < 0) wrong(rule, "has no knob 'lr', which every rule must have");
  if (rule.clip != nullptr && info.knob("max_grad_norm") < 0) {
    wrong(rule, "has a clip function but no knob 'max_grad_norm'");
  }
  std::set<std::string> names;
  for (const KnobInfo& k : info.knobs) {
    if (!names.insert(k.name).second) wrong(rule, fmt::format("has two knobs '{}'", k.name));
    const bool low = k.low_included ? k.value >= k.low : k.value > k.low;
    const bool high = k.high_included ? k.value <= k.high : k.value < k.high;
    if (!low || !high || !std::isfinite(k.value) || (k.whole && k.value != std::floor(k.value))) {
      wrong(rule, fmt::format("has the default {} for '{}', expected {}", k.value, k.name,
                              describe_range(k)));
    }
  }
  names.clear();
  for (const StateInfo& s : info.states) {
    if (!names.insert(s.name).second) wrong(rule, fmt::format("has two states '{}'", s.name));
    if (!s.when.empty() && info.knob(s.when) < 0) {
      wrong(rule, fmt::format("keeps the state '{}' when '{}' is set, but has no such knob", s.name,
                              s.when));
    }
  }
  for (const Pass& p : rule.passes) {
    for (const char* knob : {p.when, p.unless}) {
      if (knob != nullptr && info.knob(knob) < 0) {
        wrong(rule, fmt::format("has a pass that depends on '{}', but no such knob", knob));
      }
    }
  }
}

}  // namespace

Rule::Rule(const RuleData& data) : RuleFunctions(data.functions), info(info_of(data)) {
  entries.assign(data.entries.begin(), data.entries.end());
  coefs = data.coefs;
  scalars.assign(data.scalars.begin(), data.scalars.end());
  optional_states = data.optional_states;
  passes.assign(data.passes.begin(), data.passes.end());
  sums.assign(data.sums.begin(), data.sums.end());
  values = data.values;
  stages = data.stages;
  needs_matrix = data.needs_matrix;
  has_bases = data.has_bases;
  check_rule(*this);
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

const cpu::RuleKernels& Rule::cpu_kernels(int isa) const {
  const auto at = static_cast<size_t>(isa);
  return from_file ? jit::cpu_kernels(*text, isa) : *cpu[at];
}

cpu::Kernel Rule::cpu_kernel(const cpu::RuleKernels& kernels, int entry, unsigned present,
                             cpu::Path path) const {
  const int of_path = static_cast<int>(cpu::in_blocks(path) ? cpu::Path::blocks : path);
  return kernels.table[(entry * (1 << optional_states) + variant_of(present)) * 3 + of_path];
}

}  // namespace gallop
