// SPDX-License-Identifier: MIT
// The kernels of one rule. Included by a generated file that defines GALLOP_RULE (the struct) and
// GALLOP_RULE_ID (the rule's name).
#pragma once

#include "cuda/coefs.cuh"
#include "cuda/launch.cuh"
#include "cuda/norm_between.cuh"
#include "cuda/quantised.cuh"
#include "cuda/vectors.cuh"

namespace gallop::cuda {
namespace {

// The streams of one chunk, each from the chunk's first element.
template <class R, int E, unsigned Present, Path P>
struct Streams {
  using T = std::conditional_t<P == Path::f64, double, float>;
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
      : param_storage(t.param_storage), grad_storage(t.grad_storage), first(from) {
    param = advanced(t.param, kAny ? bytes_for(param_storage, from) : from * sizeof(T));
    grad = advanced(gradient, kAny ? bytes_for(grad_storage, from) : from * sizeof(T));
    if constexpr (kAny) {
      low = advanced(t.low, from * (param_storage == Storage::bf16_remainder ? 2 : 4));
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!has(j)) continue;
      state_storage[j] = t.state_storage[j];
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

// The same where states are quantised: a warp takes 256 elements, eight a lane.
template <class R, int E, unsigned Present>
struct CodeStreams : Streams<R, E, Present, Path::quantised> {
  using Base = Streams<R, E, Present, Path::quantised>;
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
    return t.scale[j] + (first + i >> scaled_bits(state_storage[j]));
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
      float e[kN];
#pragma unroll
      for (int j = 0; j < kN; ++j) e[j] = has(j) ? l.s[j][k] : 0.0f;
      const float g =
          kEntry.grad ? detail::clamped(l.g[k], job.scale, job.limit) * job.factor : 0.0f;
      l.p[k] = detail::apply<R, E>(l.p[k], g, e, job.coef);
#pragma unroll
      for (int j = 0; j < kN; ++j)
        if (writes(j)) l.s[j][k] = e[j];
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

// A block at work on one chunk after the other.
template <class R, int E, unsigned Present, Path P>
struct Worker {
  using Chunked = Streams<R, E, Present, P>;
  using T = typename Chunked::T;
  // 16-bit streams in 16-byte accesses too.
  static constexpr int kWide = Chunked::kAny ? 2 * kVector : kVector;

  const Step& s;
  Job<R, T>& job;
  // What the job was prepared for. Most tensors of a list are at the same step of the same group.
  unsigned group = ~0u;
  long long steps = -1;

  __device__ __forceinline__ void update_chunk(const Chunk chunk) {
    const Tensor& t = s.tensors[chunk.tensor];
    void* grad = s.grads[chunk.tensor];
    const long long own = s.progress[chunk.tensor].steps;
    if (detail::entry_at<R>(E).grad ? grad == nullptr : own == 0) return;
    if constexpr (P == Path::f32 || P == Path::f64) prepare_job(chunk.tensor, t.group, own);
    const Index first = chunk.index * s.chunk_elements, rest = t.n - first;
    const int n = static_cast<int>(rest < s.chunk_elements ? rest : s.chunk_elements);
    const bool aligned = t.aligned && reinterpret_cast<Bits64>(grad) % 16 == 0;
    if constexpr (P == Path::quantised) {
      return update_codes(chunk.tensor, t, grad, first, n, aligned, own);
    } else {
      update_streams(chunk.tensor, t, grad, first, n, aligned, own);
    }
  }

 private:
  // Warp by warp, 256 elements at a time.
  __device__ __forceinline__ void update_codes(unsigned tensor, const Tensor& t, void* grad,
                                               Index first, int n, bool aligned, long long own) {
    using Coded = CodeStreams<R, E, Present>;
    const Coded streams(s, t, grad, first, own);
    const auto lane = static_cast<int>(threadIdx.x % 32);
    int base = static_cast<int>(threadIdx.x / 32) * kBlock;
    const auto is_whole = [&](int b) { return aligned && b + kBlock <= n; };
    typename Coded::Loaded loaded;
    bool whole = is_whole(base);
    if (whole) streams.fetch_all(base + lane * kWide, loaded);
    prepare_job(tensor, t.group, own);
    while (base < n) {
      const int i = base + lane * kWide, rest = n - i;
      const int count = rest < 0 ? 0 : rest < kWide ? rest : kWide;
      if (!whole) streams.fetch_few(i, count, loaded);
      streams.update(i, count, whole, loaded, job);
      base += kCodeThreads / 32 * kBlock;
      whole = is_whole(base);
      if (whole) streams.fetch_all(base + lane * kWide, loaded);
    }
  }

  __device__ __forceinline__ void update_streams(unsigned tensor, const Tensor& t, void* grad,
                                                 Index first, int n, bool aligned, long long own) {
    Chunked streams(t, grad, first);
    streams.zero = s.zero_grad;
    if constexpr (P == Path::blocks) {
      streams.key = combine(combine(s.control->seed, t.id), static_cast<Bits64>(own));
    }
    const int vectors = aligned ? n / kWide * kWide : 0;
    if constexpr (P == Path::blocks) {
      // The next loads are under way before anything waits. It pays where decoding takes its
      // time; plain fp32 is 1 % slower so.
      int i = threadIdx.x * kWide;
      typename Chunked::template Loaded<kWide> loaded;
      if (i < vectors) streams.fetch_all(i, loaded);
      prepare_job(tensor, t.group, own);
      while (i < vectors) {
        streams.update(i, loaded, job);
        i += kThreads * kWide;
        if (i < vectors) streams.fetch_all(i, loaded);
      }
    } else {
      for (int i = threadIdx.x * kWide; i < vectors; i += kThreads * kWide) {
        update_at<kWide>(streams, i);
      }
    }
    for (int i = vectors + threadIdx.x; i < n; i += kThreads) update_at<1>(streams, i);
  }

  __device__ __forceinline__ void prepare_job(unsigned tensor, unsigned its_group, long long own) {
    if (!kHasScalars<R> && its_group == group && own == steps) return;
    group = its_group;
    steps = own;
    __syncthreads();
    if (threadIdx.x == 0) prepare<R, E>(s, tensor, job);
    __syncthreads();
  }

  template <int V>
  __device__ __forceinline__ void update_at(const Chunked& streams, int i) const {
    typename Chunked::template Loaded<V> loaded;
    streams.fetch_all(i, loaded);
    streams.update(i, loaded, job);
  }
};

template <class R, int E, unsigned Present, Path P>
__global__ void __launch_bounds__(threads_of(P), P == Path::f64         ? 1
                                                 : P == Path::quantised ? kCodeBlocksPerSm
                                                                        : kBlocksPerSm)
    update(const __grid_constant__ Step s) {
  using Work = Worker<R, E, Present, P>;
  __shared__ Job<R, typename Work::T> job;
  const bool skipped = E == 0 && is_skipped(s);
  if (threadIdx.x == 0) job.group = ~0u;
  Work work{s, job};
  // Blocks take chunks as they get done: some multiprocessors are farther from memory than others.
  __shared__ unsigned next[2];
  const unsigned dealt = s.first_chunk + gridDim.x;
  unsigned turn = 0, c = s.first_chunk + blockIdx.x;
  while (c < s.last_chunk && !skipped) {
    if (threadIdx.x == 0) {
      next[turn] = dealt < s.last_chunk ? dealt + atomicAdd(&s.control->taken, 1u) : dealt;
    }
    work.update_chunk(s.chunks[c]);
    __syncthreads();
    c = next[turn];
    turn ^= 1;
  }
  if (!last_block(*s.control) || E != 0) return;
  if (!skipped) {
    advance<R>(s);
  } else if (s.finish && threadIdx.x == 0) {
    ++s.control->skipped;
  }
}

// For mode unfused: what is the same for all elements, for every tensor of the list.
template <class R, int E>
__global__ void numbers(const __grid_constant__ Step s, double* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= s.member_count) return;
  const unsigned tensor = s.members[i];
  Job<R, double> job;
  job.group = ~0u;
  prepare<R, E>(s, tensor, job);
  double* to = out + static_cast<Index>(tensor) * kNumbers;
  memcpy(to, &job.coef, sizeof job.coef);
  to[kScaleAt] = job.scale;
  to[kFactorAt] = job.factor;
}

// Of an entry, or of a pass.
template <class R, int I>
const void* kernel_at() {
  constexpr int kKernel = I / (detail::kVariants<R> * kPaths);
  constexpr unsigned kPresent = detail::variant_states<R>(I / kPaths % detail::kVariants<R>);
  constexpr Path kPath = static_cast<Path>(I % kPaths);
  if constexpr (!detail::kHasNorms<R>) {
    return address_of(&update<R, kKernel, kPresent, kPath>);
  } else {
    const auto has_pass = [](bool matrix) {
      return detail::has_pass<R>(kKernel, matrix, detail::states_of_form<R>(kPresent, matrix));
    };
    if constexpr (!has_pass(true) && !has_pass(false)) {
      return nullptr;  // there is nothing to do
    } else {
      return address_of(&norm_pass<R, kKernel, kPresent, kPath>);
    }
  }
}

template <class R>
struct KernelTable {
  static constexpr int kernels() {
    if constexpr (detail::kHasNorms<R>) return detail::pass_count<R>();
    return detail::entry_count<R>();
  }
  static constexpr int kSize = kernels() * detail::kVariants<R> * kPaths;
  static constexpr int kEntries = detail::entry_count<R>();
  const void* at[kSize];
  const void* coefs[kEntries] = {};
  const void* between[detail::kMaxPasses] = {};
  const void* look_at_bases = nullptr;
  template <int I = 0>
  void fill() {
    if constexpr (I < kSize) at[I] = kernel_at<R, I>();
    if constexpr (detail::kHasNorms<R>) {
      if constexpr (I < detail::pass_count<R>()) {
        if constexpr (detail::adds_anything<R>(I)) {
          between[I] = address_of(&between_passes<R, I>);
        }
      }
    }
    if constexpr (I < kEntries) coefs[I] = address_of(&numbers<R, I>);
    if constexpr (I + 1 < kSize) fill<I + 1>();
  }
  KernelTable() {
    fill();
    if constexpr (detail::kHasBases<R>) look_at_bases = address_of(&gallop::cuda::look_at_bases<R>);
  }
};

}  // namespace

#define GALLOP_JOIN_(a, b) a##_##b
#define GALLOP_JOIN(a, b) GALLOP_JOIN_(a, b)

// A function, not data: kernels' addresses are known only when the program starts.
const RuleKernels* GALLOP_JOIN(kernels, GALLOP_RULE_ID)();
const RuleKernels* GALLOP_JOIN(kernels, GALLOP_RULE_ID)() {
  static const KernelTable<rules::GALLOP_RULE> table;
  static const RuleKernels kernels{table.at, table.coefs, table.between, table.look_at_bases};
  return &kernels;
}

}  // namespace gallop::cuda
