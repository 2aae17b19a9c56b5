// SPDX-License-Identifier: MIT
// The CPU loops of one rule for tensors whose formats are known: compiled at run time, for mode
// compiled. No call of a codec, and elements are decoded where they are used; where states share
// scales, in blocks as elsewhere.
#pragma once

#include "core/convert.h"
#include "cpu/norm_kernels.h"
#include "cpu/rule_loops.h"

namespace gallop::cpu {
namespace {

template <Storage Param, Storage Grad, Storage... States>
struct FixedFormats {
  static constexpr Storage kParam = Param, kGrad = Grad, kStates[] = {States..., Storage::f32};
};

// Element i of a block; low: its master or remainder.
template <Storage S>
GALLOP_FN float load_element(const void* data, const void* low, Index i) {
  if constexpr (S == Storage::f32) return static_cast<const float*>(data)[i];
  if constexpr (S == Storage::bf16_nearest || S == Storage::bf16_stochastic) {
    return from_bf16(static_cast<const Half*>(data)[i]);
  }
  if constexpr (S == Storage::f16_nearest || S == Storage::f16_stochastic) {
    return from_f16(static_cast<const Half*>(data)[i]);
  }
  if constexpr (S == Storage::bf16_master || S == Storage::f16_master) {
    return static_cast<const float*>(low)[i];
  }
  if constexpr (S == Storage::bf16_remainder) {
    return join_float(static_cast<const Half*>(data)[i], static_cast<const Half*>(low)[i]);
  }
}

// key: of the block's random bits.
template <Storage S>
GALLOP_FN void store_element(void* data, void* low, Index i, float x, Bits32 key) {
  Half* halves = static_cast<Half*>(data);
  if constexpr (S == Storage::f32) static_cast<float*>(data)[i] = x;
  if constexpr (S == Storage::bf16_master || S == Storage::f16_master) {
    static_cast<float*>(low)[i] = x;
  }
  if constexpr (S == Storage::bf16_nearest || S == Storage::bf16_master) {
    halves[i] = to_bf16_nearest(x);
  }
  if constexpr (S == Storage::f16_nearest || S == Storage::f16_master) {
    halves[i] = to_f16_nearest(x);
  }
  if constexpr (S == Storage::bf16_stochastic) {
    halves[i] = to_bf16_stochastic(x, lane_bits(key, static_cast<Bits32>(i)));
  }
  if constexpr (S == Storage::f16_stochastic) {
    halves[i] = to_f16_stochastic(x, lane_bits(key, static_cast<Bits32>(i)));
  }
  if constexpr (S == Storage::bf16_remainder) {
    const SplitFloat parts = split_float(x);
    halves[i] = parts.bf16;
    static_cast<Half*>(low)[i] = parts.remainder;
  }
}

// One loop that loads, computes and stores several streams of 16 bits wants more registers than
// most instruction sets have.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr bool kManyRegisters = true;
#else
inline constexpr bool kManyRegisters = false;
#endif

// One stream of a block. Results that are not plain fp32 wait in a buffer and are encoded by a loop
// of their own; with few registers, arguments are decoded into it too.
template <Storage S>
struct FittedStream {
  static constexpr bool kPlain = S == Storage::f32, kDecodedFirst = !kPlain && !kManyRegisters;
  void *data, *low;
  Bits32 key;  // of the block's random bits
  float* buffer;

  GALLOP_FN void begin(int n) const {
    if constexpr (kDecodedFirst) {
      GALLOP_VECTORIZE
      for (int i = 0; i < n; ++i) buffer[i] = load_element<S>(data, low, i);
    }
  }
  GALLOP_FN float get(int i) const {
    if constexpr (kDecodedFirst) return buffer[i];
    return load_element<S>(data, low, i);
  }
  GALLOP_FN void put(int i, float x) const {
    if constexpr (kPlain) {
      store_element<S>(data, low, i, x, key);
    } else {
      buffer[i] = x;
    }
  }
  GALLOP_FN void end(int n) const {
    if constexpr (!kPlain) {
      GALLOP_VECTORIZE
      for (int i = 0; i < n; ++i) store_element<S>(data, low, i, buffer[i], key);
    }
  }
};

template <class R, int E, unsigned Present, class F, class Known>
struct FittedLoops : Loops<R, E, Present, Known> {
  using Base = Loops<R, E, Present, Known>;
  using Base::has, Base::kEntry, Base::kN, Base::kWrites;

  // A block: where its streams begin, and their buffers.
  struct Streams {
    FittedStream<F::kParam> param;
    FittedStream<F::kGrad> grad;
    void* state[kN];
    Bits32 state_key[kN];
    float (*buffers)[kBlock];  // by state

    template <int J>
    GALLOP_FN FittedStream<F::kStates[J]> of_state() const {
      return {state[J], nullptr, state_key[J], buffers[J]};
    }
  };

  // f(stream of state J, J) for those that are kept.
  template <int J = 0, class Each>
  static GALLOP_FN void for_states(const Streams& s, Each f) {
    if constexpr (J < kN) {
      if constexpr (has(J)) f(s.template of_state<J>(), detail::Constant<J>{});
      for_states<J + 1>(s, f);
    }
  }

  template <class K>
  static GALLOP_FN void update(const Streams& s, int n, float scale, float limit, float factor,
                               const K& k) {
    s.param.begin(n);
    if constexpr (kEntry.grad) s.grad.begin(n);
    for_states(
        s, [&](auto stream, auto) __attribute__((always_inline)) { stream.begin(n); });
    GALLOP_VECTORIZE
    for (int i = 0; i < n; ++i) {
      float t[kN] = {};
      for_states(
          s, [&](auto stream, auto j) __attribute__((always_inline)) { t[j] = stream.get(i); });
      float g = 0;
      if constexpr (kEntry.grad) g = detail::clamped(s.grad.get(i), scale, limit) * factor;
      const float p = detail::apply<R, E>(s.param.get(i), g, t, k);
      if constexpr (kWrites) s.param.put(i, p);
      for_states(
          s, [&](auto stream, auto j) __attribute__((always_inline)) {
            if constexpr (Base::writes(j)) stream.put(i, t[j]);
          });
    }
    if constexpr (kWrites) s.param.end(n);
    for_states(
        s, [&](auto stream, auto j) __attribute__((always_inline)) {
          if constexpr (Base::writes(j)) stream.end(n);
        });
  }

  static GALLOP_FN char* at(const void* p, Index bytes) {
    return static_cast<char*>(const_cast<void*>(p)) + bytes;
  }

  static void elements(const KernelArgs& a) {
    alignas(64) float param[kBlock], grad[kBlock], states[kN][kBlock];
    const auto k = Base::template coefs<float>(a);
    const float scale = static_cast<float>(a.grad_scale), limit = static_cast<float>(a.grad_limit),
                factor = static_cast<float>(a.grad_factor);
    for (Index first = 0; first < a.n; first += kBlock) {
      const Bits64 index = static_cast<Bits64>(a.first_block + first / kBlock);
      Streams s;
      s.param = {at(a.param, bytes_for(F::kParam, first)),
                 at(a.low, low_bytes_for(F::kParam, first)), block_key(a.param_key, index), param};
      s.grad = {at(a.grad, bytes_for(F::kGrad, first)), nullptr, 0, grad};
      s.buffers = states;
      for (int j = 0; j < kN; ++j) {
        if (!has(j)) continue;
        s.state[j] = at(a.state[j], bytes_for(F::kStates[j], first));
        s.state_key[j] = block_key(a.state_key[j], index);
      }
      // A count that is known where blocks are whole.
      if (a.n - first >= kBlock) {
        update(s, kBlock, scale, limit, factor, k);
      } else {
        update(s, static_cast<int>(a.n - first), scale, limit, factor, k);
      }
    }
  }

  template <Path P>
  static constexpr Kernel kernel() {
    if constexpr (P == Path::blocks) return elements;
    return loop_of<Base, P>();
  }
};

// By number: of every entry; or of every pass, for vectors and for matrices, null where there is
// nothing to do.
template <class R, int Variant, Path P, class F, class Known = AsGiven>
struct FittedTable {
  static constexpr int kSize = detail::kernel_count<R>();
  static constexpr unsigned kPresent = detail::variant_states<R>(Variant);
  Kernel at[kSize];

  template <int I = 0>
  constexpr void fill() {
    if constexpr (I < kSize) {
      if constexpr (!detail::kHasNorms<R>) {
        at[I] = FittedLoops<R, I, kPresent, F, Known>::template kernel<P>();
      } else {
        at[I] = pass_kernel<R, I, kPresent, P>();
      }
      fill<I + 1>();
    }
  }
  constexpr FittedTable() : at{} { fill(); }
};

}  // namespace
}  // namespace gallop::cpu
