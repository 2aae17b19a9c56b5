// SPDX-License-Identifier: MIT
// Blocks in gallop's own formats that are not whole, or not aligned, or whose states would not be
// finite. They are few: element by element, so that the code is short.
#pragma once

#include "cuda/own_formats.cuh"
#include "cuda/quantised.cuh"
#include "cuda/rough.cuh"
#include "cuda/streams.cuh"

namespace gallop::cuda {
namespace {

template <class R, int E, unsigned Present, Elements V, bool Four, class F>
struct LeftBlocks : Streams<R, E, Present, Path::quantised, F>, OwnFormats<R, Present, Four> {
  using Base = Streams<R, E, Present, Path::quantised, F>;
  using Base::first, Base::grad, Base::has, Base::kEntry, Base::kN, Base::kWrites, Base::low,
      Base::param, Base::state, Base::writes, Base::zero;
  using Own = OwnFormats<R, Present, Four>;
  using Own::is_code, Own::kScaledBits, Own::kScales;
  static constexpr int kMine = kBlock / 32;  // a lane's elements, in pairs as 4-bit codes are
  static constexpr Bits32 kStream = static_cast<Bits32>(E) * (detail::kMaxStates + 1);

  const Tensor& t;
  Control& control;
  const Job<R, float>& job;
  long long steps;
  int n, lane;

  __device__ __forceinline__ LeftBlocks(const Step& step, const Tensor& tensor, void* gradient,
                                        Index from, int count, long long done,
                                        const Job<R, float>& prepared)
      : Base(tensor, gradient, from),
        t(tensor),
        control(*step.control),
        job(prepared),
        steps(done),
        n(count),
        lane(static_cast<int>(threadIdx.x % 32)) {
    zero = step.zero_grad;
  }

  // The block that begins at element b of the chunk.
  __device__ __forceinline__ void update(int b) const {
    float s[kN][kMine];
    Bits64 dropped = 0;
#pragma unroll 1
    for (int e = 0; e < kMine; ++e) {
      const int i = element(b, e);
      float now[kN] = {};
      if (i < n && !update_element(i, now)) ++dropped;
#pragma unroll
      for (int j = 0; j < kN; ++j) s[j][e] = now[j];
    }
    if (dropped > 0) atomicAdd(&control.not_finite, dropped);
#pragma unroll
    for (int j = 0; j < kN; ++j)
      if (writes(j) && is_code(j)) store_block(j, b, s[j]);
  }

 private:
  static __device__ __forceinline__ Storage known(Storage s) {
    return V == Elements::f32 ? Storage::f32 : V == Elements::bf16 ? Storage::bf16_nearest : s;
  }
  __device__ __forceinline__ int element(int b, int e) const {
    return b + e / 2 * 64 + lane * 2 + e % 2;
  }
  __device__ __forceinline__ float* scale_at(int j, int i) const {
    return t.scale[j] + ((first + i) >> kScaledBits);
  }

  __device__ __forceinline__ float state_at(int j, int i) const {
    if (!is_code(j)) return static_cast<const float*>(state[j])[i];
    const Code* codes = static_cast<const Code*>(state[j]);
    const auto code = Four ? static_cast<Code>(codes[i / 2] >> i % 2 * 4 & 15) : codes[i];
    float x = 0;
    with_codes_of(Own::storage_of(j), [&](auto s) { x = decode_unit<s>(code); });
    return x * *scale_at(j, i);
  }

  // False: a state that is to be a code would not have been finite, and is zero now.
  __device__ __forceinline__ bool update_element(int i, float (&now)[kN]) const {
    const Storage of_param = known(Base::param_storage), of_grad = known(Base::grad_storage);
    float p[1], g[1] = {};
    Half rest[1];
    fetch_param(param, low, of_param, i, p, rest);
    decode_param(of_param, p, rest);
    if constexpr (kEntry.grad) {
      fetch(grad, is_16_bit(of_grad), i, g);
      decode(of_grad, g);
      g[0] = detail::clamped(g[0], job.scale, job.limit) * job.factor;
    }
    Rough e[kN];
#pragma unroll
    for (int j = 0; j < kN; ++j) e[j] = has(j) ? state_at(j, i) : 0.0f;
    p[0] = detail::apply<R, E>(Rough(p[0]), Rough(g[0]), e, job.coef).x;
    if constexpr (kWrites) {
      Random random{0, first};
      if (is_stochastic(of_param)) {
        const Bits64 own = combine(combine(control.seed, t.id), static_cast<Bits64>(steps));
        random.key = combine(own, kStream);
      }
      store_param(param, low, of_param, i, random, p);
    }
    if (kEntry.grad && zero) this->template zero_gradient<1>(i);
    bool finite = true;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!writes(j)) continue;
      if (!is_code(j)) {
        static_cast<float*>(state[j])[i] = e[j].x;
        continue;
      }
      finite = finite && is_finite(e[j].x);
      now[j] = is_finite(e[j].x) ? e[j].x : 0;
    }
    return finite;
  }

  __device__ __forceinline__ void store_block(int j, int b, const float (&s)[kMine]) const {
    constexpr int kEach = kMine / kScales;
    const Bits32 start = dither_of_stream(dither_of(control.seed, t.id, steps),
                                          kStream + 1 + static_cast<Bits32>(j));
#pragma unroll 1
    for (int part = 0; part < kScales; ++part) {
      Bits32 most = 0;
      for (int e = part * kEach; e < (part + 1) * kEach; ++e) {
        const Bits32 magnitude = bits_of(s[e]) & 0x7fffffffu;
        most = magnitude > most ? magnitude : most;
      }
      const float scale = scale_of(warp_largest(most)), inverse = inverse_of(scale);
#pragma unroll 1
      for (int e = part * kEach; e < (part + 1) * kEach; e += 2) {
        const int i = element(b, e);
        const Bits32 own = dither_at(start, static_cast<Bits32>(first + i));
        Bits32 code[2];
        with_codes_of(Own::storage_of(j), [&](auto storage) {
          code[0] = encode_unit<storage>(s[e] * inverse, own);
          code[1] = encode_unit<storage>(s[e + 1] * inverse, own + kDitherElement);
        });
        Code* codes = static_cast<Code*>(state[j]);
        if (Four) {
          const Bits32 above = i + 1 < n ? code[1] << 4 : 0u;
          if (i < n) codes[i / 2] = static_cast<Code>((code[0] & 15u) | (above & 0xf0u));
        } else {
          if (i < n) codes[i] = static_cast<Code>(code[0]);
          if (i + 1 < n) codes[i + 1] = static_cast<Code>(code[1]);
        }
      }
      const int begin = b + (part << kScaledBits);
      if (lane == 0 && begin < n) *scale_at(j, begin) = scale;
    }
  }
};

}  // namespace
}  // namespace gallop::cuda
