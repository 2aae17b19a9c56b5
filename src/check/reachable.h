// SPDX-License-Identifier: MIT
// Memory that both the host, which judges, and the device under test can reach.
#pragma once

#include <cstddef>
#include <memory>

#include "gallop/optimizer.h"

namespace gallop::check {

std::shared_ptr<std::byte[]> reachable_memory(Device device, size_t bytes);
// The same for optimizer state. Freed memory is kept for the next case: there are thousands.
Allocator reachable_allocator(const Device& device);
// Returns when the device has done all it was given.
void wait_for(Device device);

}  // namespace gallop::check
