// SPDX-License-Identifier: MIT
// Rules over matrices on a GPU: batches of tensors of one shape that share scratch memory, and what
// a stage does with one.
#pragma once

#include <optional>
#include <vector>

#include "cuda/matmul.h"
#include "cuda/norms.h"

namespace gallop::cuda {

class MatrixPlan {
 public:
  // Batches of all of the optimizer's matrices.
  void assign(int device, const Rule& rule, Mode mode, const std::vector<Slot>& slots);

  // 0: what is no matrix; then by number.
  unsigned batch(size_t slot) const { return of_slot_[slot].batch; }
  unsigned batches() const { return static_cast<unsigned>(batches_.size()); }
  size_t group(unsigned batch) const { return batches_[batch - 1].group; }
  // Where a tensor's scratch state lies while its batch is at work; null for other states.
  void* scratch(size_t slot, size_t state) const;
  // What follows a pass over a batch (from 1).
  void stage(int pass, unsigned batch, const double* hyper, const NormTensor* norms, void* stream);

 private:
  friend class BatchOnDevice;
  struct Batch {
    View view;
    bool wide;    // fp64, else bf16
    Index apart;  // elements from tensor to tensor in a plane
    unsigned first_member, count;
    size_t group;
  };
  struct Place {
    unsigned batch = 0, at = 0;
  };
  const Rule* rule_ = nullptr;
  int planes_ = 0;
  std::vector<Place> of_slot_;
  std::vector<Batch> batches_;
  Buffer<unsigned> members_;
  Buffer<std::byte> scratch_;
  std::optional<Matmul> matmul_;
};

}  // namespace gallop::cuda
