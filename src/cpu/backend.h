// SPDX-License-Identifier: MIT
// Runs steps on the CPU: which thread updates which elements, and with which kernel.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/scratch.h"
#include "cpu/kernel.h"
#include "cpu/matrices.h"
#include "cpu/norms.h"
#include "cpu/tensor.h"
#include "gallop/types.h"
#include "optimizer/rule.h"

namespace gallop {
template <class T>
struct UnfusedNumbers;
}

namespace gallop::cpu {

class ArrayEngine;

class Backend {
 public:
  Backend(const Rule& rule, int threads);

  std::string_view isa() const;
  int isa_index() const { return isa_; }
  int threads() const { return threads_; }
  // Of a rule from a file, they are compiled. Not needed where tensors have fitted ones.
  void get_kernels();
  // Makes room for all of the optimizer's tensors, so that no step allocates.
  void reserve(std::span<const Tensor* const> tensors);

  void update(int entry, std::span<const Job> jobs, Mode mode, bool zero_grad);
  // Sum over all jobs of the squares of clamp(g * grad_scale, +-grad_limit): the same bits for any
  // number of threads. Not finite if a gradient is not (or, in fp64, its square overflows).
  double square_sum(std::span<const Job> jobs);
  void zero_grads(std::span<const Job> jobs);
  // Elements so far that were not finite where a quantised state was to be stored.
  long long not_finite() const { return __atomic_load_n(&not_finite_, __ATOMIC_RELAXED); }
  void set_not_finite(long long count) { not_finite_ = count; }

 private:
  // Consecutive blocks of one job; `unit` numbers the first of its units over all jobs.
  struct Piece {
    Index first, blocks, unit;
  };
  // Calls f(job, piece) for pieces that together cover all jobs and never cut `unit` blocks. A
  // thread meets its pieces in the order of the jobs, or backward.
  template <class F>
  void share_out(std::span<const Job> jobs, Index unit, bool backward, F f);
  Kernel kernel_of(int number, const Job& job) const;
  void update_piece(int entry, const Job& job, Piece piece, bool zero_grad) const;
  int useful_threads(Index elements) const;
  void update_unfused(int entry, const Job& job);
  void update_norms_unfused(const Job& job);
  // Everything of a tensor as plain arrays: apply(engine, data, numbers). See update_arrays().
  template <class Apply>
  void with_arrays(int entry, const Job& job, bool grad, unsigned writes, Apply apply);
  template <class T>
  void pass_over_arrays(int pass, const Tensor& t, ArrayEngine& engine, T* const* data,
                        const UnfusedNumbers<T>& numbers);
  void update_in_groups(std::span<const Job> jobs, bool zero_grad);
  void update_with_norms(std::span<const Job> jobs, bool zero_grad);
  template <class F>
  void for_each(std::span<const Job> jobs, F f);
  void update_batch(std::span<const Job> jobs, Mode mode, bool zero_grad);
  void run_pass(int pass, std::span<const Job> jobs, bool zero_grad);
  KernelArgs arguments(int entry, const Job& job, Index first_block, Index blocks) const;

  const Rule& rule_;
  int isa_;
  int threads_;
  const Toolkit& tools_;
  const RuleKernels* kernels_ = nullptr;
  std::vector<Index> ends_;       // blocks before and in job i
  std::vector<double> partials_;  // one per chunk of square_sum
  Scratch scratch_;               // of mode unfused
  Norms norms_;
  Matrices matrices_;
  bool backward_ = true;  // the direction of the last update
  mutable long long not_finite_ = 0;
};

}  // namespace gallop::cpu
