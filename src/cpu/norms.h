// SPDX-License-Identifier: MIT
// Rules with norms on the CPU: which pieces of which tensor are summed apart, and where the sums
// and the numbers made of them lie. The pieces depend on the tensor alone, so the sums' bits do not
// depend on threads.
#pragma once

#include <span>
#include <vector>

#include "core/norms.h"
#include "cpu/tensor.h"

namespace gallop {
struct Rule;
}

namespace gallop::cpu {

class Norms {
 public:
  explicit Norms(const Rule& rule) : rule_(rule) {}

  // Makes room for these tensors, so that no step allocates; tensor i is known by its index.
  void reserve(std::span<const Tensor* const> tensors);

  // A piece of a tensor, with sums of its own.
  struct Unit {
    Index first, n;  // elements; first is a multiple of kBlock
    Index first_row, rows, first_column, columns;
    size_t sums, row_sums, column_sums;  // where in sums_
  };
  std::span<const Unit> units(size_t tensor) const;
  // For a kernel over the unit, whose sums (or one of them) it sets to zero.
  NormArgs arguments(size_t tensor, const Unit& unit, Path path, int only = -1);
  // The same sums, to the bit, of summands that lie in an array (mode unfused). In blocks: as the
  // kernel that decodes block after block adds them.
  template <class T>
  void add_up(int q, const T* summands, size_t tensor, bool in_blocks);
  // The numbers that pass x is given, once per element.
  template <class T>
  void spread(Over over, int value, size_t tensor, T* out) const;
  double tensor_value(size_t tensor, int value) const;
  // Whether the pass is to be run: a number may say that it is not.
  bool wants(const Job& job, int pass) const;
  const double* row_values(size_t tensor, int value) const;
  // Adds the units' sums up: of the rows and columns, the given part.
  void collect(int pass, const Job& job, int part = 0, int parts = 1);
  bool many_vectors(size_t tensor) const;  // worth sharing out over threads
  // Calls the rule's between() on what was collected.
  void between(int pass, const Job& job);

 private:
  struct Plan {
    View view;
    size_t first_unit, unit_count;
    size_t totals, rows, columns, states[detail::kMaxStates];  // sums and states as doubles
    size_t tensor_values, row_values, column_values;
    size_t narrow;  // column values as floats
  };
  bool over(Over what, int q) const;
  Vectors<double> vectors(const Plan& plan);
  void copy_states(const Plan& plan, const Tensor& t, bool back);

  const Rule& rule_;
  std::vector<Plan> plans_;
  std::vector<Unit> units_;
  std::vector<double> numbers_;
  std::vector<float> narrow_;
};

}  // namespace gallop::cpu
