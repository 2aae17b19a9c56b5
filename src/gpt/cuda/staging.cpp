// SPDX-License-Identifier: MIT
#include "gpt/cuda/staging.h"

#include <cstring>

#include "cuda/memory.h"
#include "cuda/runtime.h"

namespace gallop::gpt::cuda {

using gallop::cuda::check;

constexpr size_t kMost = size_t{8} << 20;  // more is copied in one go, and waited for

Staging::Staging(int device) : device_(device) {
  const gallop::cuda::DeviceScope scope(device);
  for (Slot& slot : slots_) check(cudaEventCreate(&slot.fetched), "making an event");
}

Staging::~Staging() {
  for (Slot& slot : slots_) {
    cudaEventSynchronize(slot.fetched);
    cudaEventDestroy(slot.fetched);
    cudaFreeHost(slot.memory);
  }
}

void Staging::upload(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  if (bytes > kMost) {
    check(cudaStreamSynchronize(stream), "waiting for the device");
    return gallop::cuda::copy_to_device(device_, to, from, bytes);
  }
  Slot& slot = slots_[next_ ^= 1];
  check(cudaEventSynchronize(slot.fetched), "waiting for the device");
  if (slot.bytes < bytes) {
    cudaFreeHost(slot.memory);
    slot = {nullptr, 0, slot.fetched};
    check(cudaMallocHost(&slot.memory, bytes), "allocating memory that the GPU reaches");
    slot.bytes = bytes;
  }
  std::memcpy(slot.memory, from, bytes);
  check(cudaMemcpyAsync(to, slot.memory, bytes, cudaMemcpyDefault, stream), "copying to the GPU");
  check(cudaEventRecord(slot.fetched, stream), "copying to the GPU");
}

}  // namespace gallop::gpt::cuda
