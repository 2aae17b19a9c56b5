// SPDX-License-Identifier: MIT
// The same where every state that may be is in one of gallop's own formats, of whole blocks: most
// of the time is spent here, so formats are known when this is compiled. A warp takes a block in
// slots of four elements a lane. Blocks are on their way to shared memory while others are worked
// on; a lane reads only what it asked for itself, so nobody waits for others.
#pragma once

#include "cuda/copy_ahead.cuh"
#include "cuda/own_formats.cuh"
#include "cuda/quantised.cuh"
#include "cuda/rough.cuh"
#include "cuda/streams.cuh"

namespace gallop::cuda {
namespace {

template <class R, int E, unsigned Present, Elements V, bool Four, class F>
struct OwnStreams : Streams<R, E, Present, Path::quantised, F>, OwnFormats<R, Present, Four> {
  using Base = Streams<R, E, Present, Path::quantised, F>;
  using Base::first, Base::grad, Base::grad_storage, Base::has, Base::kEntry, Base::kN,
      Base::kWrites, Base::low, Base::param, Base::param_storage, Base::state, Base::writes,
      Base::zero;
  using Own = OwnFormats<R, Present, Four>;
  using Own::count, Own::is_code, Own::is_nonneg, Own::kScaledBits, Own::kScales, Own::place;
  static constexpr int kSlot = 32 * kVector, kSlots = kBlock / kSlot;
  static constexpr bool kAnyValues = V == Elements::any;
  using Word = detail::Choose<Four, Half, Bits32>;  // four codes

  // A block on its way, lane by lane. What a kernel has no use for takes next to no room.
  static constexpr int kExact = count(false), kExactLanes = kExact > 0 ? 32 : 1;
  template <int Lanes>
  using Vectors = float[kSlots][Lanes][kVector];
  struct alignas(16) Stage {
    Vectors<32> p, g;
    Vectors<kExactLanes> exact[kExact > 0 ? kExact : 1];
    Half rest[kSlots][kAnyValues ? 32 : 1][kVector];
    Bits32 codes[count(true)][kSlots][32];
  };

  // Of the block that is as far into the chunk as the lane into the warp.
  using Scales = float[kN][kScales];

  Bits32 dither, high, one;
  int lane;

  __device__ __forceinline__ OwnStreams(const Step& s, const Tensor& t, void* gradient, Index from,
                                        long long steps)
      : Base(t, gradient, from),
        dither(dither_at(dither_of(s.control->seed, t.id, steps), static_cast<Bits32>(from))),
        high(steps < 0 ? 0u : 0x4b000000u),
        one(high ^ 0x4b000000u ^ kDitherOne),
        lane(static_cast<int>(threadIdx.x % 32)) {
    zero = s.zero_grad;
    if (kAnyValues && is_stochastic(param_storage)) {
      this->key = combine(combine(s.control->seed, t.id), static_cast<Bits64>(steps));
    }
  }

  // Of the chunk's first blocks.
  __device__ __forceinline__ void load_scales(const Tensor& t, int blocks, Scales& scales) const {
    with_scales(t, blocks, ~0u, [&](int j, int k, float& in_memory) { scales[j][k] = in_memory; });
  }
  __device__ __forceinline__ void store_scales(const Tensor& t, int blocks,
                                               const Scales& scales) const {
    with_scales(t, blocks, kEntry.writes,
                [&](int j, int k, float& in_memory) { in_memory = scales[j][k]; });
  }

  // The block that begins at element b of the chunk.
  __device__ __forceinline__ void fetch_all(int b, Stage& to) const {
    const int i = b + lane * kVector;
    if constexpr (kEntry.grad) {
      const bool halves = V == Elements::bf16 || (kAnyValues && is_16_bit(grad_storage));
      fetch_values(grad, halves, i, to.g);
    }
    fetch_param(i, to);
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!is_code(j)) {
        if (has(j)) fetch_values(state[j], false, i, to.exact[place(j)]);
        continue;
      }
      // 4 bytes are the least: of 4-bit codes, those of two lanes.
      const char* codes = static_cast<const char*>(state[j]) + (Four ? i / 8 * 4 : i);
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) {
        copy_ahead<4>(&to.codes[place(j)][slot][lane], codes + slot * kSlot / (Four ? 2 : 1));
      }
    }
  }

  // The chunk's block number `block`. False, and nothing is changed: a state would not be finite.
  __device__ __forceinline__ bool update(int block, const Stage& from, const Job<R, float>& job,
                                         Scales& scales) const {
    const int b = block * kBlock;
    Loaded l;
    load_all(block, from, scales, l);
    if constexpr (kEntry.grad) scale_gradient(l, job);
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        Rough e[kN];
#pragma unroll
        for (int j = 0; j < kN; ++j) e[j] = has(j) ? l.s[j][slot][k] : 0.0f;
        const Rough g = kEntry.grad ? l.g[slot][k] : 0.0f;
        l.p[slot][k] = detail::apply<R, E>(Rough(l.p[slot][k]), g, e, job.coef).x;
#pragma unroll
        for (int j = 0; j < kN; ++j)
          if (writes(j)) l.s[j][slot][k] = e[j].x;
      }
    }
    Bits32 most[kN][kScales];
    if (!find_scales(l, most)) return false;
    store_params(b, l);
    store_states(b, l, most);
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!writes(j) || !is_code(j)) continue;
#pragma unroll
      for (int k = 0; k < kScales; ++k)
        if (lane == block) scales[j][k] = scale_of(most[j][k]);
    }
    return true;
  }

 private:
  template <class Each>
  __device__ __forceinline__ void with_scales(const Tensor& t, int blocks, unsigned which,
                                              Each f) const {
    if (lane >= blocks) return;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!is_code(j) || (which >> j & 1) == 0) continue;
      float* at = t.scale[j] + (first >> kScaledBits) + lane * kScales;
#pragma unroll
      for (int k = 0; k < kScales; ++k) f(j, k, at[k]);
    }
  }

  struct Loaded {
    alignas(16) float p[kSlots][kVector], g[kSlots][kVector], s[kN][kSlots][kVector];
  };

  template <int Lanes>
  __device__ __forceinline__ void fetch_values(const void* data, bool halves, int i,
                                               float (&to)[kSlots][Lanes][kVector]) const {
    const char* at = static_cast<const char*>(data) + static_cast<Index>(i) * (halves ? 2 : 4);
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      if (halves) {
        copy_ahead<8>(to[slot][lane], at + slot * kSlot * 2);
      } else {
        copy_ahead<16>(to[slot][lane], at + slot * kSlot * 4);
      }
    }
  }
  __device__ __forceinline__ void fetch_param(int i, Stage& to) const {
    if constexpr (!kAnyValues) {
      return fetch_values(param, V == Elements::bf16, i, to.p);
    } else {
      if (has_master(param_storage)) return fetch_values(low, false, i, to.p);
      fetch_values(param, is_16_bit(param_storage), i, to.p);
      if (param_storage != Storage::bf16_remainder) return;
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) {
        copy_ahead<8>(to.rest[slot][lane], static_cast<const Half*>(low) + i + slot * kSlot);
      }
    }
  }

  __device__ __forceinline__ void load_values(const Stage& from, int slot, Loaded& l) const {
    load_four(from.p[slot][lane], l.p[slot]);
    if constexpr (kEntry.grad) load_four(from.g[slot][lane], l.g[slot]);
    if constexpr (V == Elements::bf16) {
      decode_bf16(l.p[slot]);
      if constexpr (kEntry.grad) decode_bf16(l.g[slot]);
    } else if constexpr (kAnyValues) {
      Half rest[kVector];
      memcpy(rest, from.rest[slot][lane], sizeof rest);
      decode_param(param_storage, l.p[slot], rest);
      if constexpr (kEntry.grad) decode(grad_storage, l.g[slot]);
    }
  }
  __device__ __forceinline__ static void load_four(const float (&x)[kVector],
                                                   float (&out)[kVector]) {
    *reinterpret_cast<float4*>(out) = *reinterpret_cast<const float4*>(x);
  }
  __device__ __forceinline__ void load_all(int block, const Stage& from, const Scales& scales,
                                           Loaded& l) const {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      load_values(from, slot, l);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        if (is_code(j)) {
          const float its_scale = __shfl_sync(~0u, scales[j][Four ? slot : 0], block);
          Bits32 codes = from.codes[place(j)][slot][lane];
          if (Four) codes >>= lane % 2 * 16;
          is_nonneg(j) ? decode_four<Four, true>(codes, its_scale, high, l.s[j][slot])
                       : decode_four<Four, false>(codes, its_scale, high, l.s[j][slot]);
        } else if (has(j)) {
          load_four(from.exact[place(j)][slot][lane], l.s[j][slot]);
        }
      }
    }
  }

  // As detail::clamped; mostly there is no limit, and the factor is 1.
  __device__ __forceinline__ static void scale_gradient(Loaded& l, const Job<R, float>& job) {
#pragma unroll
    for (int i = 0; i < kBlock / 32; ++i) l.g[i / kVector][i % kVector] *= job.scale;
    if (job.limit == static_cast<float>(kInfinity) && job.factor == 1) return;
#pragma unroll
    for (int i = 0; i < kBlock / 32; ++i) {
      float& g = l.g[i / kVector][i % kVector];
      g = rough::smaller(rough::larger(g, -job.limit), job.limit) * job.factor;
    }
  }

  __device__ __forceinline__ bool find_scales(const Loaded& l, Bits32 (&most)[kN][kScales]) const {
    Bits32 over_all = 0;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!writes(j) || !is_code(j)) continue;
      float largest[kScales] = {};
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) {
        float& to = largest[Four ? slot : 0];
#pragma unroll
        for (int k = 0; k < kVector; ++k) to = rough::larger(to, abs(l.s[j][slot][k]));
      }
#pragma unroll
      for (int k = 0; k < kScales; ++k) {
        most[j][k] = warp_largest(bits_of(largest[k]));
        over_all = most[j][k] > over_all ? most[j][k] : over_all;
      }
    }
    return over_all < kNotFinite;
  }

  __device__ __forceinline__ void store_params(int b, const Loaded& l) const {
    constexpr Bits64 kStream = static_cast<Bits64>(E) * (detail::kMaxStates + 1);
    Random random{0, first};
    if (kAnyValues && is_stochastic(param_storage)) random.key = combine(this->key, kStream);
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const int i = b + lane * kVector + slot * kSlot;
      if constexpr (kWrites) {
        if constexpr (V == Elements::f32) store(param, i, l.p[slot]);
        if constexpr (V == Elements::bf16) store_bf16_nearest(param, i, l.p[slot]);
        if constexpr (kAnyValues) store_param(param, low, param_storage, i, random, l.p[slot]);
      }
      if (!kEntry.grad || !zero) continue;
      if constexpr (V == Elements::f32) {
        alignas(16) const float zeros[kVector] = {};
        store(grad, i, zeros);
      } else {
        this->template zero_gradient<kVector>(i);
      }
    }
  }

  __device__ __forceinline__ void store_states(int b, const Loaded& l,
                                               const Bits32 (&most)[kN][kScales]) const {
    constexpr Bits32 kStream = static_cast<Bits32>(E) * (detail::kMaxStates + 1) + 1;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const int i = b + lane * kVector + slot * kSlot;
      float offset[kN + kVector];  // state j begins with the j-th
      const Bits32 own = dither_at(dither_of_stream(dither, kStream), static_cast<Bits32>(i));
#pragma unroll
      for (int k = 0; k < kN + kVector; ++k) {
        offset[k] = offset_of(dither_at(own, static_cast<Bits32>(k)), one);
      }
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        if (!writes(j)) continue;
        if (!is_code(j)) {
          store(state[j], i, l.s[j][slot]);
          continue;
        }
        const float inverse = inverse_of_scale(scale_of(most[j][Four ? slot : 0]));
        const Bits32 codes = is_nonneg(j)
                                 ? encode_four<Four, true>(l.s[j][slot], inverse, offset + j)
                                 : encode_four<Four, false>(l.s[j][slot], inverse, offset + j);
        __stcs(static_cast<Word*>(state[j]) + i / kVector, static_cast<Word>(codes));
      }
    }
  }
};

}  // namespace
}  // namespace gallop::cuda
