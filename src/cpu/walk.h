// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "cpu/kernel.h"

namespace gallop::cpu {

// Pieces of a walk from the end, in blocks: small enough that a turn finds them in a cache.
inline constexpr Index kTurnBlocks = 64;

// Calls f(first, blocks, next) over the blocks [first, last): forward in one piece, backward in
// pieces from the last to the first. next: blocks from a piece's first to that of the one after it,
// 0 for none. Steps alternate, so that each begins with what the one before left in the caches.
template <class F>
void walk(Index first, Index last, bool backward, F f) {
  if (!backward && first < last) f(first, last - first, Index{0});
  if (!backward) return;
  while (first < last) {
    const Index piece = std::min(kTurnBlocks, last - first), start = last - piece;
    f(start, piece, -std::min(kTurnBlocks, start - first));
    last = start;
  }
}

}  // namespace gallop::cpu
