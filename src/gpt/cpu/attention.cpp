// SPDX-License-Identifier: MIT
#include "gpt/cpu/attention.h"

#include <algorithm>
#include <cmath>

#include "blas/blas.h"
#include "cpu/thread_pool.h"

namespace gallop::gpt::cpu {
namespace {

constexpr int64_t kQueries = 64;  // at a time

template <class T>
constexpr DType type_of() {
  return sizeof(T) == 8 ? DType::f64 : DType::f32;
}

// One head of one sequence.
template <class T>
struct Head {
  const T *q, *k, *v;
  int64_t stride;   // of q, k, v
  T* out;           // or its gradient
  int64_t ostride;  // of out

  Head(const AttentionShape& s, int64_t unit, const T* qkv, T* o) {
    const int64_t all = s.heads * s.width, b = unit / s.heads, h = unit % s.heads;
    stride = 3 * all;
    ostride = all;
    q = qkv + b * s.time * stride + h * s.width;
    k = q + all;
    v = k + all;
    out = o + b * s.time * all + h * s.width;
  }
};

template <class F>
void for_each_head(int threads, const AttentionShape& s, F f) {
  const int64_t units = s.batch * s.heads;
  auto work = [&](int index, int count) {
    for (int64_t u = index; u < units; u += count) f(u, index);
  };
  gallop::cpu::ThreadPool::instance().run(static_cast<int>(std::min<int64_t>(threads, units)),
                                          work);
}

template <class T>
T scale_of(const AttentionShape& s) {
  return T(1) / std::sqrt(static_cast<T>(s.width));
}

}  // namespace

template <class T>
Extent AttentionOn<T>::saved(Attention how, const AttentionShape& s) const {
  const int64_t rows = s.batch * s.heads * s.time;
  return {type_of<T>(), rows, how == Attention::naive ? s.time : 1};
}

template <class T>
Extent AttentionOn<T>::scratch(Attention how, const AttentionShape& s, bool back) const {
  if (how == Attention::naive) {
    return back ? Extent{type_of<T>(), s.batch * s.heads * s.time, s.time} : Extent{};
  }
  // Of each thread: scores, their gradient, a number a row.
  return {type_of<T>(), threads, (back ? 2 : 1) * kQueries * s.time + kQueries};
}

template <class T>
void AttentionOn<T>::forward(Attention how, const AttentionShape& s, Tensor qkv, Tensor out,
                             Tensor saved, Tensor scratch) const {
  const T scale = scale_of<T>(s);
  for_each_head(threads, s, [&](int64_t unit, int thread) {
    const Head<T> h(s, unit, qkv.as<T>(), out.as<T>());
    const bool naive = how == Attention::naive;
    T* room =
        naive ? saved.as<T>() + unit * s.time * s.time : scratch.as<T>() + thread * scratch.columns;
    T sums[kQueries];
    for (int64_t first = 0; first < s.time; first += kQueries) {
      const int64_t queries = std::min(kQueries, s.time - first);
      // Nobody looks at what is yet to come; naive computes it all the same, as others do.
      const int64_t keys = naive ? s.time : first + queries;
      T* p = naive ? room + first * s.time : room;
      blas::gemm(queries, keys, s.width, T(1), {h.q + first * h.stride, h.stride},
                 {h.k, h.stride, true}, T(0), p, keys);
      kernels.softmax(p, queries, keys, first, keys, scale,
                      naive ? sums : saved.as<T>() + unit * s.time + first);
      blas::gemm(queries, s.width, keys, T(1), {p, keys}, {h.v, h.stride}, T(0),
                 h.out + first * h.ostride, h.ostride);
    }
  });
}

template <class T>
void AttentionOn<T>::backward(Attention how, const AttentionShape& s, Tensor qkv, Tensor out,
                              Tensor saved, Tensor dout, Tensor dqkv, Tensor scratch) const {
  const T scale = scale_of<T>(s);
  for_each_head(threads, s, [&](int64_t unit, int thread) {
    const Head<T> h(s, unit, qkv.as<T>(), out.as<T>());
    const Head<T> d(s, unit, dqkv.as<T>(), dout.as<T>());
    T *dq = const_cast<T*>(d.q), *dk = const_cast<T*>(d.k), *dv = const_cast<T*>(d.v);
    const bool naive = how == Attention::naive;
    for (int64_t first = 0; first < s.time; first += kQueries) {
      const int64_t queries = std::min(kQueries, s.time - first);
      const int64_t keys = naive ? s.time : first + queries;
      T *p, *dp, *delta = nullptr;
      if (naive) {
        p = saved.as<T>() + (unit * s.time + first) * s.time;
        dp = scratch.as<T>() + (unit * s.time + first) * s.time;
      } else {
        p = scratch.as<T>() + thread * scratch.columns;
        dp = p + kQueries * s.time;
        delta = dp + kQueries * s.time;
        blas::gemm(queries, keys, s.width, T(1), {h.q + first * h.stride, h.stride},
                   {h.k, h.stride, true}, T(0), p, keys);
        kernels.softmax_again(p, queries, keys, first, keys, scale,
                              saved.as<T>() + unit * s.time + first);
        for (int64_t i = 0; i < queries; ++i) {
          const int64_t at = (first + i) * h.ostride;
          delta[i] = kernels.dot(h.out + at, d.out + at, s.width);
        }
      }
      const T* go = d.out + first * d.ostride;
      blas::gemm(queries, keys, s.width, T(1), {go, d.ostride}, {h.v, h.stride, true}, T(0), dp,
                 keys);
      kernels.softmax_backward(p, dp, queries, keys, keys, scale, delta);
      blas::gemm(queries, s.width, keys, T(1), {dp, keys}, {h.k, h.stride}, T(0),
                 dq + first * d.stride, d.stride);
      // Keys that earlier queries have seen are added to; the others begin here.
      const int64_t seen = first == 0 ? 0 : naive ? s.time : first;
      const auto onto = [&](const T* from, const T* by, int64_t stride, T* to) {
        if (seen > 0) {
          blas::gemm(seen, s.width, queries, T(1), {from, keys, true}, {by, stride}, T(1), to,
                     d.stride);
        }
        if (seen < keys) {
          blas::gemm(keys - seen, s.width, queries, T(1), {from + seen, keys, true}, {by, stride},
                     T(0), to + seen * d.stride, d.stride);
        }
      };
      onto(p, go, d.ostride, dv);
      onto(dp, h.q + first * h.stride, h.stride, dk);
    }
  });
}

template struct AttentionOn<float>;
template struct AttentionOn<double>;

}  // namespace gallop::gpt::cpu
