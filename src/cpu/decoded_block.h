// SPDX-License-Identifier: MIT
// A block of a tensor in any formats, as floats.
#pragma once

#include "core/quantise.h"
#include "cpu/isa_name.h"
#include "cpu/kernel.h"

namespace gallop::cpu {
namespace {  // nothing here may leave the object file: see tests/symbols

template <int States>
struct DecodedBlock {
  alignas(64) float decoded_p[kBlock], decoded_g[kBlock] = {}, s[States][kBlock] = {};
  // Whole blocks of plain fp32 are worked on where they lie.
  float *p = decoded_p, *g = decoded_g;
  int n;

  static Block at(void* data, void* low, const Codec& c, Index first, int n) {
    const Index block = first / kBlock;
    return {static_cast<char*>(data) + block * c.data_bytes,
            low == nullptr ? nullptr : static_cast<char*>(low) + block * c.low_bytes, n, 0};
  }

  // Reads: bit j: state j.
  template <unsigned Reads, bool Param, bool Grad>
  void load(const KernelArgs& a, Index first) {
    n = a.n - first < kBlock ? static_cast<int>(a.n - first) : kBlock;
    p = decoded_p;
    g = decoded_g;
    if constexpr (Param) {
      if (a.plain_param && n == kBlock) {
        p = static_cast<float*>(a.param) + first;
      } else {
        a.param_codec->load(at(a.param, a.low, *a.param_codec, first, n), p);
      }
    }
    if constexpr (Grad) {
      if (a.plain_grad && n == kBlock) {
        g = static_cast<float*>(const_cast<void*>(a.grad)) + first;
      } else {
        a.grad_codec->load(at(const_cast<void*>(a.grad), nullptr, *a.grad_codec, first, n), g);
      }
    }
    for (int j = 0; j < States; ++j)
      if ((Reads >> j & 1) != 0) {
        const Codec& c = *a.state_codec[j];
        c.load(at(a.state[j], a.scale[j], c, first, n), s[j]);
      }
  }

  void clamp_gradient(float scale, float limit, float factor) {
    GALLOP_VECTORIZE
    for (int i = 0; i < kBlock; ++i) {
      decoded_g[i] = detail::clamped(g[i], scale, limit) * factor;
    }
    g = decoded_g;
  }

  // Writes: the same, and kWritesParam.
  template <unsigned Writes>
  void store(const KernelArgs& a, Index first) {
    const Bits64 index = static_cast<Bits64>(a.first_block + first / kBlock);
    if ((Writes & kWritesParam) != 0 && p == decoded_p) {
      Block param = at(a.param, a.low, *a.param_codec, first, n);
      param.key = block_key(a.param_key, index);
      a.param_codec->store(param, p);
    }
    for (int j = 0; j < States; ++j)
      if ((Writes >> j & 1) != 0) {
        const Codec& c = *a.state_codec[j];
        Block state = at(a.state[j], a.scale[j], c, first, n);
        state.key = (a.quantised >> j & 1) != 0
                        ? dither_at(a.state_dither[j], static_cast<Bits32>(index * kBlock))
                        : block_key(a.state_key[j], index);
        if (c.store(state, s[j])) continue;
        drop_not_finite(a, Writes & a.quantised);
        c.store(state, s[j]);
      }
  }

  // Gradients that are not finite, where formats are as bitsandbytes has them: such an element
  // keeps its parameter, and its states begin anew.
  struct Aside {
    int count = 0, at[kBlock];
    float p[kBlock];
  };
  void set_aside(Aside& aside) {
    int most = 0;
    GALLOP_VECTORIZE
    for (int i = 0; i < kBlock; ++i) {
      const int magnitude = static_cast<int>(bits_of(g[i]) & 0x7fffffffu);
      most = magnitude > most ? magnitude : most;
    }
    if (static_cast<Bits32>(most) < kNotFinite) return;
    for (int i = 0; i < n; ++i) {
      decoded_g[i] = g[i];
      if (is_finite(g[i])) continue;
      aside.at[aside.count] = i;
      aside.p[aside.count++] = p[i];
      decoded_g[i] = 0;
    }
    g = decoded_g;
  }
  void put_back(const Aside& aside, const KernelArgs& a) {
    for (int k = 0; k < aside.count; ++k) {
      p[aside.at[k]] = aside.p[k];
      for (int j = 0; j < States; ++j) s[j][aside.at[k]] = 0;
    }
    if (aside.count > 0) __atomic_fetch_add(a.not_finite, aside.count, __ATOMIC_RELAXED);
  }

 private:
  // What is not finite cannot be stored beside others: it becomes zero, and is counted.
  void drop_not_finite(const KernelArgs& a, unsigned states) {
    long long count = 0;
    for (int i = 0; i < n; ++i) {
      bool dropped = false;
      for (int j = 0; j < States; ++j) {
        if ((states >> j & 1) == 0 || is_finite(s[j][i])) continue;
        s[j][i] = 0;
        dropped = true;
      }
      count += dropped ? 1 : 0;
    }
    __atomic_fetch_add(a.not_finite, count, __ATOMIC_RELAXED);
  }
};

}  // namespace
}  // namespace gallop::cpu
