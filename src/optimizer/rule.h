// SPDX-License-Identifier: MIT
// A rule with its types erased: what the optimizer, the checks and the benches work with.
#pragma once

#include <vector>

#include "core/array.h"
#include "core/bounded.h"
#include "core/matrices.h"
#include "core/traits.h"
#include "cpu/kernel.h"
#include "gallop/rules.h"

namespace gallop::cuda {
struct RuleKernels;
}

namespace gallop {

inline bool is_vector(StatePer p) { return p == StatePer::row || p == StatePer::column; }
inline bool is_square(StatePer p) { return p == StatePer::row_pair || p == StatePer::column_pair; }

struct Rule {
  RuleInfo info;
  std::vector<Entry> entries;
  int coefs = 0;
  std::vector<double> scalars;  // initial values
  int optional_states = 0;

  // hyper holds the knobs in the order of info.knobs.
  void (*coef)(const double* hyper, Clock clock, double* scalars, double* out) = nullptr;
  const char* (*reject)(const double* hyper) = nullptr;  // why these do not go together, or nullptr
  double (*clip)(const double* hyper,
                 double norm) = nullptr;  // the rule's own gradient clipping, or nullptr
  // The members of the rule's Hyper in their order, which need not be the knobs'.
  void (*hyper_members)(const double* hyper, double* members) = nullptr;

  // One element in double, with bounds; states in the order of info.states.
  void (*reference)(int entry, Bounded* p, Bounded g, Bounded* states,
                    const double* coef) = nullptr;
  void (*unfused_f32)(int entry, cpu::Array<float>* p_g_states,
                      const cpu::Array<float>* coef) = nullptr;
  void (*unfused_f64)(int entry, cpu::Array<double>* p_g_states,
                      const cpu::Array<double>* coef) = nullptr;
  // Of rules with norms: see core/norms.h.
  std::vector<Pass> passes;
  std::vector<Sum> sums;
  Values values{0, 0, 0};
  View (*view)(Form form, const double* hyper) = nullptr;
  void (*between)(int pass, Vectors<double>& v, const double* coef) = nullptr;
  void (*reference_pass)(int pass, bool matrix, Bounded* p, Bounded g, Bounded* states,
                         const double* coef, const Seen<Bounded>& x, Bounded* sums) = nullptr;
  void (*unfused_pass_f32)(int pass, bool matrix, cpu::Array<float>* p_g_states,
                           const cpu::Array<float>* coef, const Seen<cpu::Array<float>>& x,
                           cpu::Array<float>* sums) = nullptr;
  void (*unfused_pass_f64)(int pass, bool matrix, cpu::Array<double>* p_g_states,
                           const cpu::Array<double>* coef, const Seen<cpu::Array<double>>& x,
                           cpu::Array<double>* sums) = nullptr;
  void (*reference_between)(int pass, Vectors<Bounded>& v, const double* coef) = nullptr;
  // Of rules over matrices: see core/matrices.h.
  unsigned stages = 0;
  bool needs_matrix = false;
  void (*stage)(int pass, Linear& on, const double* hyper) = nullptr;
  Bases (*bases)(const double* hyper, Clock clock) = nullptr;

  std::vector<const cpu::RuleKernels*> cpu;  // by instruction set
  const cuda::RuleKernels* cuda = nullptr;   // built without

  unsigned present_states(const double* hyper) const;  // bit j: state j is kept
  // Bit P: pass P is run, on matrices or on vectors.
  unsigned active_passes(const double* hyper, bool matrix) const;
  // Whether none of the active passes can come after this one for the same tensor.
  bool is_last(unsigned active, int pass) const;
  bool decides() const;                    // whether numbers of tensors decide on passes
  bool adds_up(int pass) const;            // whether the pass has sums
  bool adds_by_sides(int pass) const;      // of rows or columns
  int variant_of(unsigned present) const;  // which choice of optional states
  cpu::Kernel cpu_kernel(int isa, int entry, unsigned present, cpu::Path path) const;
};

const Rule& find_rule(std::string_view name);
// Adds a rule to the process; its name must be new.
void register_rule(const Rule& rule);

}  // namespace gallop
