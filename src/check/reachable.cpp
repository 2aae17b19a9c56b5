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
  // A place that holds the number of a GPU and stays.
  int& number_of(int device) {
    const std::lock_guard lock(mutex_);
    return numbers_.emplace(device, device).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, size_t>, std::vector<void*>> free_;
  std::map<int, int> numbers_;
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
  return {
      [](size_t bytes, void* gpu) { return pool().take(*static_cast<int*>(gpu), rounded(bytes)); },
      [](void* p, size_t bytes, void* gpu) {
        pool().give(*static_cast<int*>(gpu), rounded(bytes), p);
      },
      &pool().number_of(device.index)};
}

void wait_for(Device device) {
  if (device.kind == Device::Kind::cuda) cuda::synchronize(device.index);
}

}  // namespace gallop::check
