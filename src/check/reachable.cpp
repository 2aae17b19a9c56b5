// SPDX-License-Identifier: MIT
#include "check/reachable.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "cuda/memory.h"

namespace gallop::check {
namespace {

// Pieces of a GPU's memory that were given back, by size. Never freed: the process is a check.
class Pool {
 public:
  void* take(int device, size_t bytes) {
    const std::lock_guard lock(mutex_);
    std::vector<void*>& free = free_[{device, bytes}];
    if (free.empty()) return cuda::allocate_shared(device, bytes);
    void* memory = free.back();
    free.pop_back();
    return memory;
  }
  void give(int device, size_t bytes, void* memory) {
    const std::lock_guard lock(mutex_);
    free_[{device, bytes}].push_back(memory);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, size_t>, std::vector<void*>> free_;
};

Pool& pool() {
  static Pool p;
  return p;
}

size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

std::shared_ptr<std::byte[]> reachable_memory(Device device, size_t bytes) {
  bytes = rounded(bytes);
  if (device.kind == Device::Kind::cpu) {
    return {static_cast<std::byte*>(std::aligned_alloc(64, bytes)), std::free};
  }
  return {static_cast<std::byte*>(pool().take(device.index, bytes)),
          [=](std::byte* p) { pool().give(device.index, bytes, p); }};
}

Allocator reachable_allocator(const Device& device) {
  if (device.kind == Device::Kind::cpu) {
    return {[](size_t bytes, void*) { return std::aligned_alloc(64, rounded(bytes)); },
            [](void* p, size_t, void*) { std::free(p); }};
  }
  // The context is the number of the GPU.
  return {[](size_t bytes, void* d) {
            return pool().take(static_cast<int>(reinterpret_cast<intptr_t>(d)), rounded(bytes));
          },
          [](void* p, size_t bytes, void* d) {
            pool().give(static_cast<int>(reinterpret_cast<intptr_t>(d)), rounded(bytes), p);
          },
          reinterpret_cast<void*>(static_cast<intptr_t>(device.index))};
}

void wait_for(Device device) {
  if (device.kind == Device::Kind::cuda) cuda::synchronize(device.index);
}

}  // namespace gallop::check
