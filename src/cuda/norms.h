// SPDX-License-Identifier: MIT
// Where rules with norms keep sums and numbers in device memory, and how tensors are cut for them.
#pragma once

#include <vector>

#include "cuda/norm_data.h"
#include "cuda/table.h"

namespace gallop {
struct Group;
struct Rule;
}  // namespace gallop

namespace gallop::cuda {

class NormPlan {
 public:
  // For all of the optimizer's parameters.
  void assign(int device, const Rule& rule, const std::vector<Slot>& slots,
              const std::vector<gallop::Group>& groups);

  const NormTensor* tensors() const { return tensors_.data(); }
  unsigned* marks() const { return marks_.data(); }
  void clear_marks(void* stream) const;
  unsigned mark_count() const { return static_cast<unsigned>(marks_.size()); }
  const NormTensor& tensor(size_t slot) const { return host_[slot]; }
  unsigned tiles(size_t slot) const { return host_[slot].tiles; }
  Index tile_elements(size_t slot) const;  // of a whole one
  int variant(size_t slot) const { return variants_[slot]; }
  unsigned passes(size_t slot) const { return passes_[slot]; }
  // How many blocks are worth having between passes.
  unsigned parts(size_t slot) const;

 private:
  std::vector<NormTensor> host_;
  std::vector<unsigned> passes_;
  std::vector<int> variants_;
  Buffer<double> numbers_;
  Buffer<float> narrow_;
  Buffer<unsigned> marks_;  // which passes are wanted; how often blocks have met
  bool by_sides_ = false;   // the rule has sums of rows or columns
  Buffer<NormTensor> tensors_;
};

}  // namespace gallop::cuda
