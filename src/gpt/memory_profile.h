// SPDX-License-Identifier: MIT
// Memory of one training step from moment to moment, by class, by layer and by buffer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpt/trainer.h"

namespace gallop::gpt {

using MemoryByClass = std::array<size_t, kMemoryClasses>;

size_t sum(const MemoryByClass& of);

struct MemoryProfile {
  std::string title;
  std::vector<MemoryByClass> moments;  // bytes in use; the first: before the step, the last: after
  size_t peak = 0;                     // the first moment of those with most in use
  size_t backward = 0;                 // the moment it begins; 0: not known
  std::vector<Buffer> buffers;
  size_t arena_bytes = 0;  // taken once for all buffers: gaps between them make it more than they
  MemoryByClass fixed{};   // there at every moment

  size_t allocated() const { return sum(fixed) + arena_bytes; }
};

// `fixed`: what is there besides the plan's buffers.
MemoryProfile profile_memory(const Plan& plan, const MemoryByClass& fixed);
MemoryProfile profile_memory(Trainer& trainer, const std::string& title);

// What the blocks keep at the peak: "layers 0 to 11: 3.5 MB each; outside of them: 1.2 MB".
std::string describe_layers(const MemoryProfile& profile);

// JSON for Perfetto or chrome://tracing in which a moment takes a microsecond: counters by class,
// buffers layer by layer, phases, and how much is in use at the peak, before and after.
std::string to_trace(const MemoryProfile& profile);
void write_trace(const MemoryProfile& profile, const std::string& path);

}  // namespace gallop::gpt
