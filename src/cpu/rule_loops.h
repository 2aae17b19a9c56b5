// SPDX-License-Identifier: MIT
// The CPU loops of a rule without norms: over plain arrays, and over blocks in any formats.
#pragma once

#include "cpu/decoded_block.h"
#include "cpu/isa_name.h"
#include "cpu/kernel.h"

namespace gallop::cpu {
namespace {  // nothing here may leave the object file: see tests/symbols

// Coefficients are those of the step; or, in kernels compiled at run time, some are known.
struct AsGiven {
  template <class T>
  static GALLOP_FN void put_into(T*) {}
};

template <class R, int E, unsigned Present, class Known = AsGiven>
struct Loops {
  static constexpr int kN = detail::kStates<R>;
  static constexpr Entry kEntry = detail::entry_at<R>(E);
  static constexpr bool kWrites = (kEntry.writes & kWritesParam) != 0;
  static constexpr bool has(int j) { return (Present >> j & 1) != 0; }
  static constexpr bool writes(int j) { return has(j) && (kEntry.writes >> j & 1) != 0; }

  // Element i of every state. Unrolled by hand: a loop over states, even of one turn, can keep g++
  // from vectorising the loop over elements. S is an array of pointers or of blocks.
  template <int J = 0, class S, class T>
  static GALLOP_FN void load_states(const S& s, T (&t)[kN], Index i) {
    if constexpr (J < kN) {
      t[J] = 0;
      if constexpr (has(J)) t[J] = s[J][i];
      load_states<J + 1>(s, t, i);
    }
  }
  template <int J = 0, class S, class T>
  static GALLOP_FN void store_states(S& s, const T (&t)[kN], Index i) {
    if constexpr (J < kN) {
      if constexpr (writes(J)) s[J][i] = t[J];
      store_states<J + 1>(s, t, i);
    }
  }

  template <class T>
  static GALLOP_FN typename R::template Coef<T> coefs(const KernelArgs& a) {
    auto k = detail::narrow<R, T>(a.coef);
    Known::put_into(reinterpret_cast<T*>(&k));
    return k;
  }

  // One plain array per stream, of elements T.
  template <class T>
  struct Streams {
    T* p;
    const T* g;
    T* s[kN];
    T scale, limit, factor;
    typename R::template Coef<T> k;

    explicit Streams(const KernelArgs& a)
        : p(static_cast<T*>(a.param)),
          g(static_cast<const T*>(a.grad)),
          scale(static_cast<T>(a.grad_scale)),
          limit(static_cast<T>(a.grad_limit)),
          factor(static_cast<T>(a.grad_factor)),
          k(coefs<T>(a)) {
      for (int j = 0; j < kN; ++j) s[j] = static_cast<T*>(a.state[j]);
    }

    GALLOP_FN void update(Index first, Index last) const {
      GALLOP_VECTORIZE
      for (Index i = first; i < last; ++i) {
        T t[kN];
        load_states(s, t, i);
        T grad = 0;
        if constexpr (kEntry.grad) grad = detail::clamped(g[i], scale, limit) * factor;
        const T next = detail::apply<R, E>(p[i], grad, t, k);
        if constexpr (kWrites) p[i] = next;
        store_states(s, t, i);
      }
    }
    GALLOP_FN void prefetch(Index i) const {
      __builtin_prefetch(p + i, kWrites);
      if constexpr (kEntry.grad) __builtin_prefetch(g + i);
      for (int j = 0; j < kN; ++j)
        if (has(j)) __builtin_prefetch(s[j] + i, 1);
    }
  };

  // The hardware's prefetchers alone leave a sixth of the memory's bandwidth unused when divisions
  // fill the out-of-order window.
  template <class T>
  static void direct(const KernelArgs& a) {
    constexpr Index kTile = kTileBytes / sizeof(T), kAhead = kAheadBytes / sizeof(T);
    const Streams<T> streams(a);
    Index i = 0;
    const Index prefetched = a.n < kAhead + kTile ? 0 : a.n / kTile * kTile;
    for (; i < prefetched; i += kTile) {
      const Index ahead = ahead_of(i, a.n, kAhead, kTile, a.next);
      for (Index line = 0; line < kTile; line += 64 / sizeof(T)) streams.prefetch(ahead + line);
      streams.update(i, i + kTile);
    }
    streams.update(i, a.n);
  }

  static void blocks(const KernelArgs& a) {
    DecodedBlock<kN> b;
    const auto k = coefs<float>(a);
    // Mostly there is no limit, and the factor is 1 then.
    const bool limited = a.grad_limit < kInfinity;
    const float grad_scale = static_cast<float>(a.grad_scale), scale = limited ? 1 : grad_scale;
    for (Index first = 0; first < a.n; first += kBlock) {
      b.template load<Present, true, kEntry.grad>(a, first);
      typename DecodedBlock<kN>::Aside aside;
      if (kEntry.grad && a.resets) b.set_aside(aside);
      if (kEntry.grad && limited) {
        b.clamp_gradient(grad_scale, static_cast<float>(a.grad_limit),
                         static_cast<float>(a.grad_factor));
      }
      float* const p = b.p;
      const float* const g = b.g;
      GALLOP_VECTORIZE
      for (int i = 0; i < kBlock; ++i) {
        float t[kN];
        load_states(b.s, t, i);
        const float grad = kEntry.grad ? g[i] * scale : 0;
        p[i] = detail::apply<R, E>(p[i], grad, t, k);
        store_states(b.s, t, i);
      }
      if (aside.count > 0) b.put_back(aside, a);
      b.template store<kEntry.writes&(kWritesParam | Present)>(a, first);
    }
  }
};

template <class L, Path P>
constexpr Kernel loop_of() {
  if constexpr (P == Path::f32) return L::template direct<float>;
  if constexpr (P == Path::f64) return L::template direct<double>;
  return L::blocks;
}

}  // namespace
}  // namespace gallop::cpu
