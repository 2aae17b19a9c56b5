// SPDX-License-Identifier: MIT
// How large a GPU's buffers are: also for plans where there is no GPU.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gallop::gpt::cuda {

inline constexpr int64_t kWidestNorm = 6144;
inline constexpr int64_t kWarpWidest = 1024;  // a warp's registers hold a row
inline constexpr int kNormWarps = 4;          // of a block

inline bool norm_by_warps(int64_t width) { return width % 4 == 0 && width <= kWarpWidest; }

// Of a norm's backward, each with sums of its own.
inline int64_t norm_blocks(int64_t rows, int64_t width) {
  constexpr int64_t kMost = 528;
  const int64_t at_once = norm_by_warps(width) ? kNormWarps : 1;
  return std::min((rows + at_once - 1) / at_once, kMost);
}

// cuBLASLt's products of whole sizes are several times faster than those of odd ones.
inline int64_t logits_columns(int64_t vocabulary) {
  constexpr int64_t kWell = 8, kWhole = 64;
  return vocabulary % kWell == 0 ? vocabulary : (vocabulary + kWhole - 1) / kWhole * kWhole;
}

}  // namespace gallop::gpt::cuda
