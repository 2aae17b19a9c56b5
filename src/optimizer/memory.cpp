// SPDX-License-Identifier: MIT
#include "optimizer/memory.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "cuda/memory.h"
#include "gallop/error.h"

namespace gallop {
namespace {

[[noreturn]] void out_of_memory(size_t bytes, const char* why) {
  throw Error(ErrorCode::out_of_memory,
              fmt::format("no memory for {} bytes of optimizer state ({})", bytes, why));
}

}  // namespace

Memory::Memory(size_t bytes, const Allocator& allocator, Device device)
    : bytes_(bytes), allocator_(allocator), device_(device) {
  if (bytes == 0) return;
  const bool gpu = device.kind == Device::Kind::cuda;
  if (allocator.allocate != nullptr) {
    data_ = static_cast<std::byte*>(allocator.allocate(bytes, allocator.context));
    if (data_ == nullptr) out_of_memory(bytes, "the allocator returned null");
    gpu ? cuda::zero(device.index, data_, bytes) : void(std::memset(data_, 0, bytes));
    return;
  }
  if (gpu) {
    data_ = static_cast<std::byte*>(cuda::allocate(device.index, bytes));
    return;
  }
  pages_ = detail::map_pages(bytes);
  if (pages_.data == nullptr) out_of_memory(bytes, std::strerror(errno));
  data_ = static_cast<std::byte*>(pages_.data);
}

Memory::~Memory() {
  detail::unmap(pages_);
  if (data_ == nullptr || pages_.data != nullptr) return;
  if (allocator_.release != nullptr) {
    allocator_.release(data_, bytes_, allocator_.context);
  } else if (allocator_.allocate == nullptr && device_.kind == Device::Kind::cuda) {
    cuda::release(device_.index, data_);
  }
}

Memory::Memory(Memory&& other) noexcept { *this = std::move(other); }

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(pages_, other.pages_);
  std::swap(allocator_, other.allocator_);
  std::swap(device_, other.device_);
  return *this;
}

}  // namespace gallop
