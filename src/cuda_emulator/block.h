// SPDX-License-Identifier: MIT
#pragma once

#include "cuda_emulator/cuda_runtime_api.h"
#include "cuda_emulator/kernels.h"

namespace gallop::emulator {

// As many blocks run at the same time; a launch of more runs them one after the other.
inline constexpr unsigned kMultiprocessors = 4, kBlocksAtOnce = 2 * kMultiprocessors;
inline constexpr unsigned kMostThreads = 1024;

// All blocks of a launch, until they are done.
void run_blocks(dim3 grid, dim3 block, const Call& call);

}  // namespace gallop::emulator
