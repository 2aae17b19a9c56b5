// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace gallop::gpt::cuda {

// Small pieces of memory on their way to a GPU: copied where the GPU can fetch them, so that the
// caller may go on at once.
class Staging {
 public:
  explicit Staging(int device);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void upload(void* to, const void* from, size_t bytes, cudaStream_t stream);

 private:
  struct Slot {
    void* memory = nullptr;
    size_t bytes = 0;
    cudaEvent_t fetched = nullptr;
  };
  int device_;
  Slot slots_[2];
  int next_ = 0;
};

}  // namespace gallop::gpt::cuda
