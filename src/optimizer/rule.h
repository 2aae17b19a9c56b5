// SPDX-License-Identifier: MIT
// A rule with its types erased: what the optimizer, the checks and the benches work with.
#pragma once

#include <vector>

#include "core/array.h"
#include "core/bounded.h"
#include "core/traits.h"
#include "cpu/kernel.h"
#include "gallop/rules.h"

namespace gallop::cuda {
struct RuleKernels;
}

namespace gallop {

struct Rule {
  RuleInfo info;
  std::vector<Entry> entries;
  int coefs;
  std::vector<double> scalars;  // initial values
  int optional_states;

  // hyper holds the knobs in the order of info.knobs.
  void (*coef)(const double* hyper, Clock clock, double* scalars, double* out);
  const char* (*reject)(const double* hyper);        // why these do not go together, or nullptr
  double (*clip)(const double* hyper, double norm);  // the rule's own gradient clipping, or nullptr
  // The members of the rule's Hyper in their order, which need not be the knobs'.
  void (*hyper_members)(const double* hyper, double* members);

  // One element in double, with bounds; states in the order of info.states.
  void (*reference)(int entry, Bounded* p, Bounded g, Bounded* states, const double* coef);
  void (*unfused_f32)(int entry, cpu::Array<float>* p_g_states, const cpu::Array<float>* coef);
  void (*unfused_f64)(int entry, cpu::Array<double>* p_g_states, const cpu::Array<double>* coef);
  std::vector<const cpu::RuleKernels*> cpu;  // by instruction set
  const cuda::RuleKernels* cuda;             // null: built without

  unsigned present_states(const double* hyper) const;  // bit j: state j is kept
  cpu::Kernel cpu_kernel(int isa, int entry, unsigned present, cpu::Path path) const;
};

const Rule& find_rule(std::string_view name);
// Adds a rule to the process; its name must be new.
void register_rule(const Rule& rule);

}  // namespace gallop
