// SPDX-License-Identifier: MIT
// The kernels of one rule with norms between its passes: from sums to numbers.
#pragma once

#include "cuda/norm_kernels.cuh"
#include "cuda/norm_vectors.cuh"

namespace gallop::cuda {
namespace {

// f(integral constant) for 0 to N - 1: a rule's tables are for the compiler alone.
template <int N, int I = 0, class F>
__device__ __forceinline__ void for_indices(F f) {
  if constexpr (I < N) {
    f(detail::Constant<I>{});
    for_indices<N, I + 1>(f);
  }
}

// One block for each share.
template <class R, int P>
__global__ void __launch_bounds__(kThreads, kBetweenPerSm)
    between_passes(const __grid_constant__ NormStep ns) {
  const Step& s = ns.step;
  const Share share = ns.shares[blockIdx.x];
  const unsigned tensor = share.tensor;
  const NormTensor& n = ns.norms[tensor];
  if (kDecided<R, P> && (ns.wanted[P] == 0 || !is_wanted_by<R, P>(n))) return;
  if (is_skipped(s) || s.grads[tensor] == nullptr || n.tiles == 0) return;
  __shared__ Job<R, double> job;
  if (threadIdx.x == 0) {
    job.group = ~0u;
    prepare<R, 0>(s, tensor, job);
  }
  DeviceVectors v(s.tensors[tensor], n, share, P);
  const auto for_sums = []<Over O>(detail::Constant<O>, auto f) {
    for_indices<detail::sum_count<R>()>([&](auto q) {
      constexpr Sum kSum = R::sums[q];
      if constexpr ((kSum.passes >> P & 1) != 0 && kSum.over == O) f(q);
    });
  };
  // Columns first: they need not wait for the first thread.
  if (n.view.matrix) {
    for_sums(detail::Constant<Over::column>{}, [&](int q) { v.add_row_tiles(q); });
  }
  for_sums(detail::Constant<Over::tensor>{}, [&](int q) { v.add_tiles(q); });
  // Every row and column is one thread's throughout: blocks meet for sums alone.
  __syncthreads();
  R::template between<P>(v, job.coef);
  __syncthreads();
  v.store_tensor_values();
  if (v.is_first()) {
    for_indices<detail::pass_count<R>()>([&](auto later) {
      constexpr Pass kLater = R::passes[later];
      if (!kDecided<R, later>) return;
      if (is_wanted(kLater, [&](int number) { return v.tensor(number); })) ns.wanted[later] = 1;
    });
  }
}

// What the step will do with the bases of every member, before any of its passes.
template <class R>
__global__ void look_at_bases(const __grid_constant__ NormStep ns, int* out) {
  const Step& s = ns.step;
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= s.member_count) return;
  const unsigned tensor = s.members[i];
  out[i] = kStepSkipped;
  if (is_skipped(s) || s.grads[tensor] == nullptr) return;
  typename R::Hyper h;
  memcpy(&h, s.groups[s.tensors[tensor].group].hyper, sizeof h);
  out[i] = static_cast<int>(R::bases(h, clock_of<R>(s, tensor, 0)));
}

}  // namespace
}  // namespace gallop::cuda
