// SPDX-License-Identifier: MIT
// The kernel that updates tensors by a rule without norms.
#pragma once

#include "cuda/code_loops.cuh"
#include "cuda/streams.cuh"

namespace gallop::cuda {
namespace {

// A block at work on one chunk after the other.
template <class R, int E, unsigned Present, Kind K, class F>
struct Worker {
  static constexpr Path P = path_of(K);
  using Chunked = Streams<R, E, Present, P, F>;
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
    const CodeChunk chunk{s, t, grad, first, n, aligned ? n / kBlock * kBlock : 0, own};
    const auto prepare = [&] { prepare_job(tensor, t.group, own); };
    if constexpr (is_own(K)) {
      constexpr Elements kElements = elements_of(K);
      const unsigned left =
          update_own<R, E, Present, kElements, is_4_bit(K), F>(chunk, job, prepare);
      if (left != 0) update_left<R, E, Present, kElements, is_4_bit(K), F>(chunk, left, job);
    } else {
      prepare();
      update_any<R, E, Present, F>(chunk, job);
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

template <class R, int E, unsigned Present, Kind K, class F = AnyFormats>
__global__ void __launch_bounds__(threads_of(K), blocks_per_sm(K))
    update(const __grid_constant__ Step s) {
  using Work = Worker<R, E, Present, K, F>;
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

}  // namespace
}  // namespace gallop::cuda
