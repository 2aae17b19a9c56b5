// SPDX-License-Identifier: MIT
// Which launches update a list of tensors, and which chunk of what each block takes.
#pragma once

#include <cstring>
#include <vector>

#include "cuda/kernels.h"
#include "cuda/memory.h"
#include "cuda/norm_data.h"
#include "gallop/types.h"

namespace gallop {
struct Rule;
struct Slot;
}  // namespace gallop

namespace gallop::cuda {

// An array in device memory.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() {
    if (data_ != nullptr) release(device_, data_);
  }
  Buffer(Buffer&& other) noexcept { *this = static_cast<Buffer&&>(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  // Zeroed when it changes; keeps its address and what it holds when the size stays.
  void resize(int device, size_t size) {
    if (size == size_) return;
    Buffer fresh;
    fresh.device_ = device;
    if (size > 0) fresh.data_ = static_cast<T*>(allocate(device, size * sizeof(T)));
    fresh.size_ = size;
    *this = static_cast<Buffer&&>(fresh);
  }
  void assign(int device, const std::vector<T>& values) {
    resize(device, values.size());
    if (size_ > 0) copy_to_device(device_, data_, values.data(), size_ * sizeof(T));
  }
  std::vector<T> to_host() const {
    std::vector<T> out(size_);
    if (size_ > 0) copy_to_host(device_, out.data(), data_, size_ * sizeof(T));
    return out;
  }
  T* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  int device_ = 0;
  T* data_ = nullptr;
  size_t size_ = 0;
};

class MatrixPlan;
class NormPlan;

class Table {
 public:
  struct Launch {
    unsigned present;
    Kind kind;
    Formats formats = {};  // of mode compiled
    unsigned passes = 0;   // of a rule with norms: which to run
    unsigned batch = 0;    // of a rule over matrices: which goes through them together
    unsigned first_chunk = 0, last_chunk = 0, first_member = 0, member_count = 0;
    // Shares of what comes between passes, every tensor with a block to itself; and where rows and
    // columns are at stake and some tensors have several, as many blocks at a time as can run side
    // by side, then the rest.
    unsigned first_share = 0, first_of_teams = 0;
    std::vector<unsigned> in_teams = {};
    unsigned beside_teams = 0;
    std::vector<const void*> kernels = {};  // by entry, or by pass; null: nothing to do
  };

  Table() = default;
  // With a plan, chunks are tiles of a rule with norms. by_format: tensors of different formats go
  // into different launches.
  Table(int device, int multiprocessors, const Rule& rule, Mode mode, bool by_format,
        const std::vector<Slot>& slots, const std::vector<size_t>& chosen,
        const NormPlan* plan = nullptr, const MatrixPlan* matrices = nullptr);

  const std::vector<Launch>& launches() const { return launches_; }  // at least one
  std::vector<Launch>& launches() { return launches_; }
  const Chunk* chunks() const { return chunks_.data(); }
  const unsigned* members() const { return members_.data(); }
  size_t member(size_t i) const { return chosen_[i]; }
  size_t member_count() const { return chosen_.size(); }
  const Share* shares() const { return shares_.data(); }
  size_t chunk_count() const { return chunks_.size(); }
  Index chunk_elements() const { return chunk_elements_; }

 private:
  std::vector<Launch> launches_;
  Index chunk_elements_ = 0;
  std::vector<unsigned> chosen_;  // members_, here
  Buffer<Chunk> chunks_;
  Buffer<unsigned> members_;
  Buffer<Share> shares_;
};

}  // namespace gallop::cuda
