// SPDX-License-Identifier: MIT
// Counter-based random bits: a pure function of (seed, step, parameter, stream, element), so that a
// resumed run, any number of threads and any device draw the same.
#pragma once

#include "core/rule.h"

namespace gallop {

using Bits32 = unsigned int;
using Bits64 = unsigned long long;

GALLOP_FN Bits64 scramble(Bits64 x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

GALLOP_FN Bits64 combine(Bits64 key, Bits64 value) {
  return scramble(key + 0x9e3779b97f4a7c15ull * (value + 1));
}

// One key per 256 elements, full strength; the lanes below only need to be spread out.
GALLOP_FN Bits32 block_key(Bits64 key, Bits64 block) {
  return static_cast<Bits32>(combine(key, block) >> 32);
}

GALLOP_FN Bits32 lane_bits(Bits32 key, Bits32 lane) {
  Bits32 h = (lane + key) * 0x9e3779b1u;
  h = (h ^ (h >> 15)) * 0x85ebca77u;
  h = (h ^ (h >> 13)) * 0xc2b2ae3du;
  return h >> 16;  // 16 uniform bits
}

}  // namespace gallop
