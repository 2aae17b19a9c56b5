// SPDX-License-Identifier: MIT
// Rules over matrices on a GPU: batches of tensors of one shape that share scratch memory, and what
// a stage does with one.
#pragma once

#include <optional>
#include <vector>

#include "core/matrices.h"
#include "cuda/matmul.h"
#include "cuda/norms.h"

namespace gallop::cuda {

class MatrixPlan {
 public:
  // Batches of all of the optimizer's matrices.
  void assign(int device, const Rule& rule, const void* look_at_bases, Mode mode,
              int multiprocessors, const std::vector<Slot>& slots);

  // 0: what is no matrix; then by number.
  unsigned batch(size_t slot) const { return of_slot_[slot].batch; }
  unsigned batches() const { return static_cast<unsigned>(batches_.size()); }
  size_t group(unsigned batch) const { return batches_[batch - 1].group; }
  // Where a tensor's scratch state lies while its batch is at work; null for other states.
  void* scratch(size_t slot, size_t state) const;
  // Before the first pass over a batch.
  void begin(unsigned batch, const NormStep& step, void* stream);
  // What follows a pass over a batch.
  void stage(int pass, unsigned batch, const double* hyper, const NormStep& step, void* stream);
  // Some bases are still to be made, by the host, in the next step that is not skipped.
  bool bases_missing(const std::vector<Slot>& slots) const;

 private:
  friend class BatchOnDevice;
  struct Batch {
    View view;
    Element element;
    Index apart;  // elements from tensor to tensor in a plane
    unsigned first_member, count;
    size_t group;
  };
  struct Place {
    unsigned batch = 0, at = 0;
  };
  Index scratch_elements(const Batch& b) const;
  unsigned teams(const Batch& b) const;
  std::vector<size_t> without_bases(const Batch& b) const;
  void make_bases(const Batch& b, Linear::Sides bases, Linear::Sides grams, void* stream);

  int device_ = 0, multiprocessors_ = 1;
  const Rule* rule_ = nullptr;
  const void* look_at_bases_ = nullptr;  // the rule's kernel, if it has bases
  const std::vector<Slot>* slots_ = nullptr;
  int planes_ = 0;
  std::vector<Place> of_slot_;
  std::vector<Batch> batches_;
  std::vector<unsigned> host_members_;
  std::vector<bool> has_bases_;  // by slot
  Buffer<unsigned> members_, met_;
  Buffer<int> changes_;  // of bases, by member
  Buffer<std::byte> scratch_;
  std::optional<Matmul> matmul_;
};

}  // namespace gallop::cuda
