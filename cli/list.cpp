// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/common.h"
#include "cli/list_policy.h"
#include "gallop/rules.h"
#include "optimizer/rule.h"

namespace gallop::cli {
namespace {

struct Format {
  DType param;
  StateFormat state;
  const char* name;
};
constexpr Format kFormats[] = {{DType::f32, StateFormat::f32, "bytes_fp32"},
                               {DType::f32, StateFormat::bf16, "bytes_fp32_state_bf16"},
                               {DType::f32, StateFormat::q8, "bytes_fp32_state_8bit"},
                               {DType::bf16, StateFormat::f32, "bytes_bf16"},
                               {DType::bf16, StateFormat::bf16, "bytes_bf16_state_bf16"},
                               {DType::bf16, StateFormat::q8, "bytes_bf16_state_8bit"}};

// Bytes moved per element and step, counted by an optimizer over a made-up matrix of one block.
double bytes_per_element(const std::string& rule, const Format& f) {
  Optimizer o(rule, {});
  GroupOptions group;
  group.state = StatePolicy::all(f.state);
  double element = 0;
  o.add_group({{"p", {1, 256}, &element, nullptr, f.param, f.param, Role::other}}, group);
  return static_cast<double>(o.bytes_per_step()) / 256;
}

std::string default_text(const KnobInfo& k) {
  if (!k.choices.empty()) return k.choices[static_cast<size_t>(k.value)];
  return fmt::format("{:g}", k.value);
}

lab::Table overview() {
  lab::Table table;
  for (const std::string& name : rule_names()) {
    const RuleInfo& info = rule_info(name);
    std::vector<std::string> states, defaults;
    for (const StateInfo& s : info.states) {
      if (s.scratch) continue;
      states.push_back(s.when.empty() ? s.name : fmt::format("{} (if {})", s.name, s.when));
    }
    for (const KnobInfo& k : info.knobs) {
      defaults.push_back(fmt::format("{}={}", k.name, default_text(k)));
    }
    lab::Row row;
    row.set("optimizer", name).set("about", info.about);
    row.set("states", fmt::format("{}", fmt::join(states, ", ")));
    for (const Format& f : kFormats) row.set(f.name, bytes_per_element(name, f));
    row.set("defaults", fmt::format("{}", fmt::join(defaults, " ")));
    row.set("formula", info.formula);
    table.rows.push_back(std::move(row));
  }
  table.columns = {"optimizer", "about", "states", "bytes_fp32", "bytes_fp32_state_8bit",
                   "bytes_bf16"};
  table.notes = {
      "bytes: read and written per parameter and step with fp32 or bf16 parameters and "
      "gradients; fp32 state unless another is named",
      "gallop list NAME shows one in full, gallop list --policy hybrid what quantised state saves"};
  return table;
}

lab::Table in_full(const std::string& name) {
  const RuleInfo& info = rule_info(name);
  lab::Table table;
  table.title = info.about;
  for (const KnobInfo& k : info.knobs) {
    lab::Row row;
    row.set("knob", k.name).set("default", default_text(k)).set("range", describe_range(k));
    row.set("help", k.help);
    table.rows.push_back(std::move(row));
  }
  table.notes.push_back("formula: " + info.formula);
  for (const StateInfo& s : info.states) {
    const char* of = s.per == StatePer::row           ? ", one for each row of a matrix"
                     : s.per == StatePer::column      ? ", one for each column of a matrix"
                     : s.per == StatePer::row_pair    ? ", a square over the rows of a matrix"
                     : s.per == StatePer::column_pair ? ", a square over the columns of a matrix"
                     : !s.of_vectors                  ? ", of matrices only"
                     : !s.of_matrices                 ? ", of vectors only"
                                                      : "";
    if (s.scratch) continue;
    table.notes.push_back(fmt::format("state {}: {}{}{}{}", s.name,
                                      s.nonneg ? "never negative" : "any sign",
                                      s.exact ? ", always 32 bits" : "", of,
                                      s.when.empty() ? "" : ", kept if " + s.when + " is not 0"));
  }
  if (!info.scalars.empty()) {
    table.notes.push_back(fmt::format("scalars kept per {}: {}",
                                      info.counts_per_group ? "group" : "parameter",
                                      fmt::join(info.scalars, ", ")));
  }
  if (info.entries.size() > 1) {
    table.notes.push_back(fmt::format("entries: {}", fmt::join(info.entries, ", ")));
  }
  for (const Format& f : kFormats) {
    table.notes.push_back(fmt::format("{} {}, state {}: {:.4g} bytes per parameter and step",
                                      to_string(f.param), "parameters and gradients",
                                      to_string(f.state), bytes_per_element(name, f)));
  }
  if (find_rule(name).stages != 0) {
    table.notes.push_back(
        "bytes are those of passes over a matrix's elements; its products come on top");
  }
  table.notes.push_back("maximize is an option of every group, not of the rule");
  return table;
}

}  // namespace

void add_list(CLI::App& app) {
  struct State {
    Output output;
    RuleFiles rules;
    std::string name, policy, shapes = "gpt2:12x768";
  };
  auto s = std::make_shared<State>();
  CLI::App* list = app.add_subcommand("list", "The optimizers: states, bytes, defaults, formula");
  list->add_option("optimizer,--optimizer", s->name,
                   "Show this one in full; with --policy, the one to choose for (default adamw)");
  s->rules.add_to(*list);
  CLI::Option* policy = list->add_option(
      "--policy", s->policy,
      "Show which state format each parameter of a model has, and what that saves: fp32, bf16, "
      "8bit, 8bit-bnb, 4bit, fp8; hybrid; or CONDITION[&CONDITION...]=FORMAT,...,FORMAT with "
      "conditions such as norm, embedding, size<4096, dims>=2, 'h.*.bias'");
  list->add_option("--shapes", s->shapes,
                   "With --policy: gpt2:LAYERSxWIDTH, or a file with a line 'name 768x3072 [ROLE]' "
                   "for each tensor")
      ->needs(policy)
      ->capture_default_str();
  s->output.add_to(*list);
  list->callback([s, policy] {
    if (s->name.empty() && s->rules.given()) s->name = s->rules.names().back();
    if (policy->count() == 0) {
      s->output.emit(s->name.empty() ? overview() : in_full(s->name));
    } else {
      s->output.emit(policy_table(s->policy, bench::parse_shapes(s->shapes),
                                  s->name.empty() ? "adamw" : s->name));
    }
  });
}

}  // namespace gallop::cli
