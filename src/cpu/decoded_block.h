// SPDX-License-Identifier: MIT
// A block of a tensor in any formats, as floats.
#pragma once

#include "cpu/kernel.h"

namespace gallop::cpu {
namespace {  // nothing here may leave the object file: see tests/symbols

template <int States>
struct DecodedBlock {
  alignas(64) float p[kBlock], g[kBlock] = {}, s[States][kBlock] = {};
  int n;

  static Block at(void* data, void* low, const Codec& c, Index first, int n) {
    return {static_cast<char*>(data) + first * c.data_bytes,
            low == nullptr ? nullptr : static_cast<char*>(low) + first * c.low_bytes, n, 0};
  }

  // Reads: bit j: state j.
  template <unsigned Reads, bool Param, bool Grad>
  void load(const KernelArgs& a, Index first) {
    n = a.n - first < kBlock ? static_cast<int>(a.n - first) : kBlock;
    if constexpr (Param) a.param_codec->load(at(a.param, a.low, *a.param_codec, first, n), p);
    if constexpr (Grad) {
      a.grad_codec->load(at(const_cast<void*>(a.grad), nullptr, *a.grad_codec, first, n), g);
    }
    for (int j = 0; j < States; ++j)
      if ((Reads >> j & 1) != 0) {
        const Codec& c = *a.state_codec[j];
        c.load(at(a.state[j], nullptr, c, first, n), s[j]);
      }
  }

  // Writes: the same, and kWritesParam.
  template <unsigned Writes>
  void store(const KernelArgs& a, Index first) const {
    const Bits64 index = static_cast<Bits64>(a.first_block + first / kBlock);
    if constexpr ((Writes & kWritesParam) != 0) {
      Block param = at(a.param, a.low, *a.param_codec, first, n);
      param.key = block_key(a.param_key, index);
      a.param_codec->store(param, p);
    }
    for (int j = 0; j < States; ++j)
      if ((Writes >> j & 1) != 0) {
        const Codec& c = *a.state_codec[j];
        Block state = at(a.state[j], nullptr, c, first, n);
        state.key = block_key(a.state_key[j], index);
        c.store(state, s[j]);
      }
  }
};

}  // namespace
}  // namespace gallop::cpu
