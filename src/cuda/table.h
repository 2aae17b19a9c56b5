// SPDX-License-Identifier: MIT
// Which launches update a list of tensors, and which chunk of what each block takes.
#pragma once

#include <cstring>
#include <vector>

#include "cuda/memory.h"
#include "cuda/step_data.h"
#include "gallop/types.h"

namespace gallop {
struct Slot;
}

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

  // Keeps its address when the size stays.
  void assign(int device, const std::vector<T>& values) {
    if (values.size() != size_) {
      Buffer fresh;
      fresh.device_ = device;
      if (!values.empty())
        fresh.data_ = static_cast<T*>(allocate(device, values.size() * sizeof(T)));
      fresh.size_ = values.size();
      *this = static_cast<Buffer&&>(fresh);
    }
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

class Table {
 public:
  struct Launch {
    unsigned present;
    Path path;
    unsigned first_chunk = 0, last_chunk = 0, first_member = 0, member_count = 0;
  };

  Table() = default;
  Table(int device, int multiprocessors, Mode mode, const std::vector<Slot>& slots,
        const std::vector<size_t>& chosen);

  const std::vector<Launch>& launches() const { return launches_; }  // at least one
  const Chunk* chunks() const { return chunks_.data(); }
  const unsigned* members() const { return members_.data(); }
  size_t chunk_count() const { return chunks_.size(); }
  Index chunk_elements() const { return chunk_elements_; }

 private:
  std::vector<Launch> launches_;
  Index chunk_elements_ = 0;
  Buffer<Chunk> chunks_;
  Buffer<unsigned> members_;
};

}  // namespace gallop::cuda
