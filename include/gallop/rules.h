// SPDX-License-Identifier: MIT
// What optimizers there are and what each takes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gallop {

struct KnobInfo {
  std::string name, help;
  double value;  // the default
  double low, high;
  bool low_included, high_included, whole;
  std::vector<std::string> choices;  // when not empty, the value is an index into them
};

enum class StatePer { element, row, column, row_pair, column_pair };

struct StateInfo {
  std::string name;
  bool nonneg;
  bool exact;        // kept in at least 32 bits whatever the state format
  std::string when;  // kept only if this knob is not zero; empty: always
  StatePer per = StatePer::element;
  bool of_matrices = true, of_vectors = true;  // for which tensors it is kept
  bool optional = false;                       // not for every group
  bool scratch = false;                        // not kept: lives for one step
  bool basis = false;                          // orthonormal rows, not the only ones that are right
};

struct RuleInfo {
  std::string name, about, formula;
  std::vector<KnobInfo> knobs;
  std::vector<StateInfo> states;
  std::vector<std::string> entries;  // "step" and what else can be asked of it
  std::vector<std::string> scalars;  // kept per parameter, or per group when the count is
  bool counts_per_group;
  bool keeps_dims = false;  // states per row or column have a 1 for the dimension they lack

  int knob(std::string_view name) const;  // index, -1 when there is none
};

std::vector<std::string> rule_names();             // sorted
const RuleInfo& rule_info(std::string_view name);  // throws, naming what there is

// Compiles the rule in a file and returns its name, by which it is known from then on.
std::string load_rule_file(const std::string& path);

// The range in words: "in [0, 1)".
std::string describe_range(const KnobInfo&);

}  // namespace gallop
