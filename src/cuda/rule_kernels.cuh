// SPDX-License-Identifier: MIT
// The kernels of one rule. Included by a generated file that defines GALLOP_RULE (the struct) and
// GALLOP_RULE_ID (the rule's name).
#pragma once

#include "cuda/coefs.cuh"
#include "cuda/launch.cuh"
#include "cuda/norm_between.cuh"
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

  void *param, *low, *grad, *state[kN];
  Storage param_storage, grad_storage, state_storage[kN];
  Index first;
  Bits64 key;  // of the tensor's random bits in this step
  bool zero;   // the gradient, after it was read

  __device__ __forceinline__ Streams(const Tensor& t, void* gradient, Index from)
      : param_storage(t.param_storage), grad_storage(t.grad_storage), first(from) {
    constexpr bool kAny = P == Path::blocks;
    param = advanced(t.param, from * (kAny ? bytes_of(param_storage) : sizeof(T)));
    grad = advanced(gradient, from * (kAny ? bytes_of(grad_storage) : sizeof(T)));
    if constexpr (kAny) {
      low = advanced(t.low, from * (param_storage == Storage::bf16_remainder ? 2 : 4));
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!has(j)) continue;
      state_storage[j] = t.state_storage[j];
      state[j] = advanced(t.state[j], from * (kAny ? bytes_of(state_storage[j]) : sizeof(T)));
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

 private:
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
    if (P != Path::blocks || grad_storage == Storage::f32) return store(grad, i, zeros);
    alignas(16) const Half halves[V] = {};
    store(grad, i, halves);
  }
};

// A block at work on one chunk after the other.
template <class R, int E, unsigned Present, Path P>
struct Worker {
  using Chunked = Streams<R, E, Present, P>;
  using T = typename Chunked::T;
  // 16-bit streams in 16-byte accesses too.
  static constexpr int kWide = P == Path::blocks ? 2 * kVector : kVector;

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
    if constexpr (P != Path::blocks) prepare_job(chunk.tensor, t.group, own);
    const Index first = chunk.index * s.chunk_elements, rest = t.n - first;
    const int n = static_cast<int>(rest < s.chunk_elements ? rest : s.chunk_elements);
    const bool aligned = t.aligned && reinterpret_cast<Bits64>(grad) % 16 == 0;
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
      prepare_job(chunk.tensor, t.group, own);
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

 private:
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
__global__ void __launch_bounds__(kThreads, P == Path::f64 ? 1 : kBlocksPerSm)
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
