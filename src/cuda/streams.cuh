// SPDX-License-Identifier: MIT
// What a rule reads and writes of one chunk, and one element after the other of it.
#pragma once

#include "cuda/coefs.cuh"
#include "cuda/vectors.cuh"

namespace gallop::cuda {
namespace {

// How a tensor lies in memory: as it says; or, in kernels compiled at run time, as these say.
struct AnyFormats {
  static __device__ __forceinline__ Storage param(const Tensor& t) { return t.param_storage; }
  static __device__ __forceinline__ Storage grad(const Tensor& t) { return t.grad_storage; }
  static __device__ __forceinline__ Storage state(const Tensor& t, int j) {
    return t.state_storage[j];
  }
};
template <Storage Param, Storage Grad, Storage... States>
struct FixedFormats {
  static __device__ __forceinline__ Storage param(const Tensor&) { return Param; }
  static __device__ __forceinline__ Storage grad(const Tensor&) { return Grad; }
  static __device__ __forceinline__ Storage state(const Tensor&, int j) {
    constexpr Storage kStates[] = {States..., Storage::f32};
    return kStates[j];
  }
};

// The streams of one chunk, each from the chunk's first element.
template <class R, int E, unsigned Present, Path P, class F>
struct Streams {
  using T = detail::Choose<P == Path::f64, double, float>;
  static constexpr int kN = detail::kStates<R>;
  static constexpr Entry kEntry = detail::entry_at<R>(E);
  static constexpr bool kWrites = (kEntry.writes & kWritesParam) != 0;
  static constexpr bool has(int j) { return (Present >> j & 1) != 0; }
  static constexpr bool writes(int j) { return has(j) && (kEntry.writes >> j & 1) != 0; }

  static constexpr bool kAny = P == Path::blocks || P == Path::quantised;

  void *param, *low, *grad, *state[kN];
  Storage param_storage, grad_storage, state_storage[kN];
  Index first;
  Bits64 key;  // of the tensor's random bits in this step
  bool zero;   // the gradient, after it was read

  __device__ __forceinline__ Streams(const Tensor& t, void* gradient, Index from)
      : param_storage(F::param(t)), grad_storage(F::grad(t)), first(from) {
    param = advanced(t.param, kAny ? bytes_for(param_storage, from) : from * sizeof(T));
    grad = advanced(gradient, kAny ? bytes_for(grad_storage, from) : from * sizeof(T));
    if constexpr (kAny) {
      low = advanced(t.low, from * (param_storage == Storage::bf16_remainder ? 2 : 4));
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!has(j)) continue;
      state_storage[j] = F::state(t, j);
      state[j] = advanced(t.state[j], kAny ? bytes_for(state_storage[j], from) : from * sizeof(T));
    }
  }

  // V elements of every stream, by one thread.
  template <int V>
  struct Loaded {
    alignas(16) T p[V], g[V], s[kN > 0 ? kN : 1][V];
    alignas(16) Half rest[V];
  };

  template <int V>
  __device__ __forceinline__ void fetch_all(int i, Loaded<V>& l) const {
    if constexpr (P == Path::blocks) {
      if constexpr (kEntry.grad) fetch(grad, is_16_bit(grad_storage), i, l.g);
      fetch_param(param, low, param_storage, i, l.p, l.rest);
#pragma unroll
      for (int j = 0; j < kN; ++j)
        if (has(j)) fetch(state[j], is_16_bit(state_storage[j]), i, l.s[j]);
    } else {
      if constexpr (kEntry.grad) load(grad, i, l.g);
      load(param, i, l.p);
#pragma unroll
      for (int j = 0; j < kN; ++j)
        if (has(j)) load(state[j], i, l.s[j]);
    }
  }

  template <int V>
  __device__ __forceinline__ void update(int i, Loaded<V>& l, const Job<R, T>& job) const {
    if constexpr (P == Path::blocks) {
      if constexpr (kEntry.grad) decode(grad_storage, l.g);
      decode_param(param_storage, l.p, l.rest);
#pragma unroll
      for (int j = 0; j < kN; ++j)
        if (has(j)) decode(state_storage[j], l.s[j]);
    }
#pragma unroll
    for (int k = 0; k < V; ++k) {
      T t[kN];
#pragma unroll
      for (int j = 0; j < kN; ++j) t[j] = has(j) ? l.s[j][k] : T(0);
      const T g = kEntry.grad ? detail::clamped(l.g[k], job.scale, job.limit) * job.factor : T(0);
      l.p[k] = detail::apply<R, E>(l.p[k], g, t, job.coef);
#pragma unroll
      for (int j = 0; j < kN; ++j)
        if (writes(j)) l.s[j][k] = t[j];
    }
    store_all(i, l);
    if (kEntry.grad && zero) zero_gradient<V>(i);
  }

 protected:
  template <int V>
  __device__ __forceinline__ void store_all(int i, const Loaded<V>& l) const {
    constexpr Bits64 kStream = static_cast<Bits64>(E) * (detail::kMaxStates + 1);
    const auto random = [&](int stream) {
      return Random{combine(key, kStream + static_cast<Bits64>(stream)), first};
    };
    if constexpr (P == Path::blocks) {
      if constexpr (kWrites) store_param(param, low, param_storage, i, random(0), l.p);
#pragma unroll
      for (int j = 0; j < kN; ++j)
        if (writes(j)) store_state(state[j], state_storage[j], i, random(1 + j), l.s[j]);
    } else {
      if constexpr (kWrites) store(param, i, l.p);
#pragma unroll
      for (int j = 0; j < kN; ++j)
        if (writes(j)) store(state[j], i, l.s[j]);
    }
  }
  template <int V>
  __device__ __forceinline__ void zero_gradient(int i) const {
    alignas(16) const T zeros[V] = {};
    if (!kAny || grad_storage == Storage::f32) return store(grad, i, zeros);
    alignas(16) const Half halves[V] = {};
    store(grad, i, halves);
  }
};

}  // namespace
}  // namespace gallop::cuda
