// SPDX-License-Identifier: MIT
// Rules over matrices on the CPU: tensors of one shape at a time, in batches that share scratch
// memory. How products are cut depends on the shape alone, so their bits do not depend on threads.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "cpu/norms.h"
#include "cpu/tensor.h"

namespace gallop {
struct Rule;
}

namespace gallop::cpu {

class Matrices {
 public:
  Matrices(const Rule& rule, int threads, const Norms& norms)
      : rule_(rule), threads_(threads), norms_(norms) {}

  // Makes room for batches of these tensors, so that no step allocates.
  void reserve(std::span<const Tensor* const> tensors);

  // Calls f(batch) for batches that together are all jobs: first what is no matrix, then matrices
  // with their scratch. At most one matrix tensor a batch if `apart`.
  template <class F>
  void for_batches(std::span<const Job> jobs, bool apart, F f) {
    sort(jobs);
    for (size_t first = 0; first < sorted_.size();) {
      const size_t count = batch_at(first, apart);
      f(bind({sorted_.data() + first, count}));
      first += count;
    }
  }
  // What the rule does with the matrices of a batch after a pass.
  void stage(int pass, std::span<const Job> batch);

 private:
  void sort(std::span<const Job> jobs);
  size_t batch_at(size_t first, bool apart) const;
  std::span<const Job> bind(std::span<const Job> batch);

  const Rule& rule_;
  int threads_;
  const Norms& norms_;
  std::vector<Job> sorted_, bound_;
  std::vector<Tensor> tensors_;  // of the batch, with scratch
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<std::byte, Free> scratch_;
  // Of scratch_: the plane that the next product goes to, and what the batch's planes leave.
  std::byte *spare_ = nullptr, *rest_ = nullptr;
};

}  // namespace gallop::cpu
