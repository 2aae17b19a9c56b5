// SPDX-License-Identifier: MIT
// What the object file of a rule tells the rest: plain data, functions without the rule's types,
// and nothing of std. It may be linked in or compiled at run time by another compiler.
#pragma once

#include "core/array.h"
#include "core/bounded.h"
#include "core/matrices.h"
#include "core/traits.h"
#include "cpu/kernel.h"

namespace gallop {
namespace cuda {
struct RuleKernels;
}

struct KnobData {
  const char *name, *help;
  double value;  // the default
  Range range;
  const char* choices;
};

// hyper holds the knobs in the order they are declared in.
struct RuleFunctions {
  void (*coef)(const double* hyper, Clock clock, double* scalars, double* out) = nullptr;
  const char* (*reject)(const double* hyper) = nullptr;  // why these do not go together, or nullptr
  double (*clip)(const double* hyper,
                 double norm) = nullptr;  // the rule's own gradient clipping, or nullptr
  // The members of the rule's Hyper in their order, which need not be the knobs'.
  void (*hyper_members)(const double* hyper, double* members) = nullptr;

  // One element in double, with bounds; states in their order.
  void (*reference)(Arithmetic, int entry, Bounded* p, Bounded g, Bounded* states,
                    const double* coef) = nullptr;
  void (*unfused_f32)(int entry, cpu::Array<float>* p_g_states,
                      const cpu::Array<float>* coef) = nullptr;
  void (*unfused_f64)(int entry, cpu::Array<double>* p_g_states,
                      const cpu::Array<double>* coef) = nullptr;
  // Of rules with norms: see core/norms.h.
  View (*view)(Form form, const double* hyper) = nullptr;
  // Whether a pass has something to do, with this choice of optional states.
  bool (*has_pass)(int pass, int variant) = nullptr;
  void (*between)(int pass, Vectors<double>& v, const double* coef) = nullptr;
  void (*reference_pass)(Arithmetic, int pass, bool matrix, Bounded* p, Bounded g, Bounded* states,
                         const double* coef, const Seen<Bounded>& x, Bounded* sums) = nullptr;
  void (*reference_between)(Arithmetic, int pass, Vectors<Bounded>& v,
                            const double* coef) = nullptr;
  void (*unfused_pass_f32)(int pass, bool matrix, cpu::Array<float>* p_g_states,
                           const cpu::Array<float>* coef, const Seen<cpu::Array<float>>& x,
                           cpu::Array<float>* sums) = nullptr;
  void (*unfused_pass_f64)(int pass, bool matrix, cpu::Array<double>* p_g_states,
                           const cpu::Array<double>* coef, const Seen<cpu::Array<double>>& x,
                           cpu::Array<double>* sums) = nullptr;
  // Of rules over matrices: see core/matrices.h.
  void (*stage)(int pass, Linear& on, const double* hyper) = nullptr;
  Bases (*bases)(const double* hyper, Clock clock) = nullptr;
};

template <class T>
struct Listed {
  const T* at = nullptr;
  int count = 0;
  const T* begin() const { return at; }
  const T* end() const { return at + count; }
};

struct RuleData {
  const char *name = nullptr, *about = nullptr, *formula = nullptr;
  Listed<KnobData> knobs;
  Listed<State> states;
  Listed<Entry> entries;
  Listed<const char*> scalar_names;
  Listed<double> scalars;  // initial values
  Listed<Pass> passes;
  Listed<Sum> sums;
  Values values{0, 0, 0};
  int coefs = 0, optional_states = 0;
  unsigned stages = 0;
  bool counts_per_group = false, keeps_dims = false, needs_matrix = false, has_bases = false;
  RuleFunctions functions;
};

}  // namespace gallop
