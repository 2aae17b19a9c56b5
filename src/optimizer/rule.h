// SPDX-License-Identifier: MIT
// A rule with its types erased: what the optimizer, the checks and the benches work with.
#pragma once

#include <memory>
#include <vector>

#include "gallop/rules.h"
#include "optimizer/rule_data.h"

namespace gallop {
namespace jit {
struct RuleText;
// Of a rule that gallop_add_rule() links in.
std::shared_ptr<const RuleText> linked_in_text(const char* path, const char* folder,
                                               const char* text);
}  // namespace jit

inline bool is_vector(StatePer p) { return p == StatePer::row || p == StatePer::column; }
inline bool is_square(StatePer p) { return p == StatePer::row_pair || p == StatePer::column_pair; }

struct Rule : RuleFunctions {
  explicit Rule(const RuleData& data);  // throws where the data make no sense

  RuleInfo info;
  std::vector<Entry> entries;
  int coefs = 0;
  std::vector<double> scalars;  // initial values
  int optional_states = 0;
  // Of rules with norms, and of those over matrices.
  std::vector<Pass> passes;
  std::vector<Sum> sums;
  Values values{0, 0, 0};
  unsigned stages = 0;
  bool needs_matrix = false, has_bases = false;

  // Linked in, by instruction set; and for GPUs, or null: built without.
  std::vector<const cpu::RuleKernels*> cpu;
  const cuda::RuleKernels* cuda = nullptr;
  std::shared_ptr<const jit::RuleText> text;  // of a rule that is not this library's own
  bool from_file = false;                     // nothing is linked in: kernels are compiled

  unsigned present_states(const double* hyper) const;  // bit j: state j is kept
  // Bit P: pass P is run, on matrices or on vectors.
  unsigned active_passes(const double* hyper, bool matrix) const;
  // Whether none of the active passes can come after this one for the same tensor.
  bool is_last(unsigned active, int pass) const;
  bool decides() const;                    // whether numbers of tensors decide on passes
  bool adds_up(int pass) const;            // whether the pass has sums
  bool adds_by_sides(int pass) const;      // of rows or columns
  int variant_of(unsigned present) const;  // which choice of optional states
  const cpu::RuleKernels& cpu_kernels(int isa) const;  // may compile, and throw
  cpu::Kernel cpu_kernel(const cpu::RuleKernels& kernels, int entry, unsigned present,
                         cpu::Path path) const;
};

const Rule& find_rule(std::string_view name);
const Rule* find_rule_if(std::string_view name);  // null: there is none
// Adds a rule to the process; its name must be new.
void register_rule(Rule rule);
// The same, of a name that may be known; optimizers keep what they were made with.
void replace_rule(Rule rule);

}  // namespace gallop
