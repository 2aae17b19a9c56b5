// SPDX-License-Identifier: MIT
// The same with states in blocks that share a scale.
#pragma once

#include "cuda/quantised.cuh"
#include "cuda/rough.cuh"
#include "cuda/streams.cuh"

namespace gallop::cuda {
namespace {

// The same where states are quantised: a warp takes 256 elements, eight a lane.
template <class R, int E, unsigned Present, class F>
struct CodeStreams : Streams<R, E, Present, Path::quantised, F> {
  using Base = Streams<R, E, Present, Path::quantised, F>;
  using Base::first, Base::grad, Base::grad_storage, Base::has, Base::kEntry, Base::kN,
      Base::kWrites, Base::low, Base::param, Base::param_storage, Base::state, Base::state_storage,
      Base::writes, Base::zero;
  static constexpr int kWide = 2 * kVector;

  const Tensor& t;
  Control& control;
  long long steps;

  __device__ __forceinline__ CodeStreams(const Step& s, const Tensor& tensor, void* gradient,
                                         Index from, long long done)
      : Base(tensor, gradient, from), t(tensor), control(*s.control), steps(done) {
    zero = s.zero_grad;
  }

  struct Loaded {
    alignas(16) float p[kWide], g[kWide], s[kN > 0 ? kN : 1][kWide];
    alignas(16) Half rest[kWide];
    alignas(8) Codes<kWide> codes[kN > 0 ? kN : 1];
    float scale[kN > 0 ? kN : 1];
  };

  __device__ __forceinline__ float* scale_at(int j, int i) const {
    return t.scale[j] + ((first + i) >> scaled_bits(state_storage[j]));
  }

  __device__ __forceinline__ void fetch_all(int i, Loaded& l) const {
    if constexpr (kEntry.grad) fetch(grad, is_16_bit(grad_storage), i, l.g);
    fetch_param(param, low, param_storage, i, l.p, l.rest);
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!has(j)) continue;
      if (is_quantised(state_storage[j])) {
        fetch_codes(state[j], is_4_bit(state_storage[j]), i, l.codes[j]);
        l.scale[j] = *scale_at(j, i);
      } else {
        load(state[j], i, l.s[j]);
      }
    }
  }
  // One by one, n of them; the others are zeros.
  __device__ __forceinline__ void fetch_few(int i, int n, Loaded& l) const {
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      float g[1] = {}, p[1] = {};
      Half rest[1] = {};
      if (k < n) {
        if constexpr (kEntry.grad) {
          fetch(grad, is_16_bit(grad_storage), i + k, g);
          decode(grad_storage, g);
        }
        fetch_param(param, low, param_storage, i + k, p, rest);
        decode_param(param_storage, p, rest);
      }
      l.g[k] = g[0];
      l.p[k] = p[0];
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!has(j)) continue;
      if (is_quantised(state_storage[j])) {
        fetch_few_codes(state[j], is_4_bit(state_storage[j]), i, n, l.codes[j]);
        l.scale[j] = n > 0 ? *scale_at(j, i) : 0;
      } else {
#pragma unroll
        for (int k = 0; k < kWide; ++k) {
          l.s[j][k] = k < n ? static_cast<const float*>(state[j])[i + k] : 0;
        }
      }
    }
  }

  // n of the lane's eight count. whole: all of them, of every lane, and as they lie in memory.
  __device__ __forceinline__ void update(int i, int n, bool whole, Loaded& l,
                                         const Job<R, float>& job) const {
    if (whole) {
      if constexpr (kEntry.grad) decode(grad_storage, l.g);
      decode_param(param_storage, l.p, l.rest);
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!has(j) || !is_quantised(state_storage[j])) continue;
      decode_codes(state_storage[j], l.codes[j], l.scale[j], l.s[j]);
    }
    unsigned aside = 0;  // bit k: the gradient is not finite, and that resets
    if (kEntry.grad && t.resets) {
#pragma unroll
      for (int k = 0; k < kWide; ++k) {
        const bool finite = is_finite(l.g[k]);
        aside |= finite ? 0u : 1u << k;
        l.g[k] = finite ? l.g[k] : 0.0f;
      }
    }
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      Rough e[kN];
#pragma unroll
      for (int j = 0; j < kN; ++j) e[j] = has(j) ? l.s[j][k] : 0.0f;
      const Rough g =
          kEntry.grad ? detail::clamped(l.g[k], job.scale, job.limit) * job.factor : 0.0f;
      l.p[k] = detail::apply<R, E>(Rough(l.p[k]), g, e, job.coef).x;
#pragma unroll
      for (int j = 0; j < kN; ++j)
        if (writes(j)) l.s[j][k] = e[j].x;
    }
    if (aside != 0) put_back(i, n, aside, l);
    store_params(i, n, whole, l);
    if (!whole) clear_past(n, l);
    store_states(i, n, whole, l);
  }

 private:
  __device__ __forceinline__ float param_at(int i) const {
    float x[1];
    Half rest[1];
    fetch_param(param, low, param_storage, i, x, rest);
    decode_param(param_storage, x, rest);
    return x[0];
  }
  // As bitsandbytes: not updated, and the states begin anew.
  __device__ __forceinline__ void put_back(int i, int n, unsigned aside, Loaded& l) const {
    Bits64 count = 0;
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      if ((aside >> k & 1) == 0 || k >= n) continue;
      ++count;
      l.p[k] = param_at(i + k);
#pragma unroll
      for (int j = 0; j < kN; ++j) l.s[j][k] = 0;
    }
    atomicAdd(&control.not_finite, count);
  }
  __device__ __forceinline__ void clear_past(int n, Loaded& l) const {
#pragma unroll
    for (int j = 0; j < kN; ++j) {
#pragma unroll
      for (int k = 0; k < kWide; ++k)
        if (k >= n) l.s[j][k] = 0;
    }
  }

  __device__ __forceinline__ void store_params(int i, int n, bool whole, const Loaded& l) const {
    constexpr Bits64 kStream = static_cast<Bits64>(E) * (detail::kMaxStates + 1);
    const bool zeroes = kEntry.grad && zero;
    Random random{0, first};
    if (is_stochastic(param_storage)) {
      const Bits64 own = combine(combine(control.seed, t.id), static_cast<Bits64>(steps));
      random.key = combine(own, kStream);
    }
    if (whole) {
      if constexpr (kWrites) store_param(param, low, param_storage, i, random, l.p);
      if (zeroes) this->template zero_gradient<kWide>(i);
      return;
    }
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      const float x[1] = {l.p[k]};
      if (k >= n) continue;
      if constexpr (kWrites) store_param(param, low, param_storage, i + k, random, x);
      if (zeroes) this->template zero_gradient<1>(i + k);
    }
  }

  __device__ __forceinline__ Bits32 shared_largest(int j, const Loaded& l) const {
    const Bits32 most = largest_of(l.s[j]);
    return is_4_bit(state_storage[j]) ? half_warp_largest(most) : warp_largest(most);
  }
  // What is not finite cannot be stored beside others: it becomes zero, and is counted.
  __device__ __forceinline__ void drop_not_finite(Loaded& l) const {
    unsigned dropped = 0;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!writes(j) || !is_quantised(state_storage[j])) continue;
#pragma unroll
      for (int k = 0; k < kWide; ++k) {
        const bool finite = is_finite(l.s[j][k]);
        l.s[j][k] = finite ? l.s[j][k] : 0;
        dropped |= finite ? 0 : 1u << k;
      }
    }
    Bits64 count = 0;
    for (int k = 0; k < kWide; ++k) count += dropped >> k & 1u;
    if (count > 0) atomicAdd(&control.not_finite, count);
  }

  __device__ __forceinline__ void store_states(int i, int n, bool whole, Loaded& l) const {
    Bits32 most[kN > 0 ? kN : 1], over_all = 0;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!writes(j) || !is_quantised(state_storage[j])) continue;
      most[j] = shared_largest(j, l);
      over_all = most[j] > over_all ? most[j] : over_all;
    }
    // Of 4-bit codes, one half of the warp may be finite and the other not.
    if (warp_largest(over_all) >= kNotFinite) {
      drop_not_finite(l);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        if (writes(j) && is_quantised(state_storage[j])) most[j] = shared_largest(j, l);
      }
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!writes(j)) continue;
      if (is_quantised(state_storage[j])) {
        store_quantised(j, i, n, most[j], l);
      } else {
        store_plain(j, i, n, whole, l);
      }
    }
  }
  __device__ __forceinline__ void store_quantised(int j, int i, int n, Bits32 most,
                                                  const Loaded& l) const {
    constexpr Bits32 kStream = static_cast<Bits32>(E) * (detail::kMaxStates + 1);
    const Storage storage = state_storage[j];
    const float scale = scale_of(most);
    const auto element = static_cast<Bits32>(first + i);
    const Bits32 start = dither_of_stream(dither_of(control.seed, t.id, steps),
                                          kStream + 1 + static_cast<Bits32>(j));
    alignas(8) Codes<kWide> codes;
    encode_codes(storage, l.s[j], scale, dither_at(start, element), codes);
    store_codes(state[j], is_4_bit(storage), i, n, codes);
    // The first lane of each block; n is zero past the tensor's end.
    const Bits32 within = element & static_cast<Bits32>(scaled_block(storage) - 1);
    if (n > 0 && within == 0) *scale_at(j, i) = scale;
  }
  // Beside quantised states, only exact ones are not: fp32.
  __device__ __forceinline__ void store_plain(int j, int i, int n, bool whole,
                                              const Loaded& l) const {
    if (whole) return store(state[j], i, l.s[j]);
#pragma unroll
    for (int k = 0; k < kWide; ++k)
      if (k < n) static_cast<float*>(state[j])[i + k] = l.s[j][k];
  }
};

}  // namespace
}  // namespace gallop::cuda
