// SPDX-License-Identifier: MIT
// A chunk whose states are quantised, by a warp that takes 256 elements at a time.
#pragma once

#include "cuda/code_streams.cuh"
#include "cuda/left_blocks.cuh"
#include "cuda/own_streams.cuh"

namespace gallop::cuda {
namespace {

struct CodeChunk {
  const Step& step;
  const Tensor& tensor;
  void* grad;
  Index first;
  int n, whole;  // elements, and how many of them are in whole blocks, as they lie in memory
  long long steps;
};

static_assert(kCodeThreads == 32);

// In any formats, and with tensors' ends.
template <class R, int E, unsigned Present, class F>
__device__ __forceinline__ void update_any(const CodeChunk& c, const Job<R, float>& job) {
  using Coded = CodeStreams<R, E, Present, F>;
  const Coded streams(c.step, c.tensor, c.grad, c.first, c.steps);
  const auto lane = static_cast<int>(threadIdx.x);
  for (int b = 0; b < c.n; b += kBlock) {
    const int i = b + lane * Coded::kWide, rest = c.n - i;
    const int count = rest < 0 ? 0 : rest < Coded::kWide ? rest : Coded::kWide;
    const bool is_whole = b < c.whole;
    typename Coded::Loaded loaded;
    if (is_whole) {
      streams.fetch_all(i, loaded);
    } else {
      streams.fetch_few(i, count, loaded);
    }
    streams.update(i, count, is_whole, loaded, job);
  }
}

// Those of a chunk's blocks whose bits are set.
template <class R, int E, unsigned Present, Elements V, bool Four, class F>
__device__ __noinline__ void update_left(const CodeChunk& c, unsigned which,
                                         const Job<R, float>& job) {
  const LeftBlocks<R, E, Present, V, Four, F> blocks(c.step, c.tensor, c.grad, c.first, c.n,
                                                     c.steps, job);
  for (int b = 0; b < c.n; b += kBlock, which >>= 1)
    if ((which & 1) != 0) blocks.update(b);
}

// Whole blocks in gallop's own formats. Returns which of all blocks are left, as bits. prepare():
// the job, while the first block is on its way.
template <class R, int E, unsigned Present, Elements V, bool Four, class F, class Prepare>
__device__ __forceinline__ unsigned update_own(const CodeChunk& c, const Job<R, float>& job,
                                               Prepare prepare) {
  using Own = OwnStreams<R, E, Present, V, Four, F>;
  using Stage = typename Own::Stage;
  __shared__ Stage stages[2];
  Stage *here = stages, *ahead = here + 1;
  const Own streams(c.step, c.tensor, c.grad, c.first, c.steps);
  const int blocks = c.whole / kBlock;
  if (blocks > 0) streams.fetch_all(0, *here);
  end_of_copies();
  typename Own::Scales scales;
  streams.load_scales(c.tensor, blocks, scales);
  prepare();
  unsigned left = c.whole < c.n ? ~0u << blocks : 0;
  for (int block = 0; block < blocks; ++block) {
    if (block + 1 < blocks) streams.fetch_all((block + 1) * kBlock, *ahead);
    end_of_copies();
    wait_for_copies<1>();
    if (!streams.update(block, *here, job, scales)) left |= 1u << block;
    Stage* const free = here;
    here = ahead;
    ahead = free;
  }
  streams.store_scales(c.tensor, blocks, scales);
  __syncwarp();  // before others write those of blocks that are left
  return left;
}

}  // namespace
}  // namespace gallop::cuda
