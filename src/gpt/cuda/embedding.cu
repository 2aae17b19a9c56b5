// SPDX-License-Identifier: MIT
#include "cuda/runtime.h"
#include "gpt/cuda/element.cuh"
#include "gpt/cuda/kernels.h"

namespace gallop::gpt::cuda {
namespace {

using gallop::cuda::check;

constexpr int kThreads = 128;

template <class W, class X>
__global__ void embed_kernel(const int32_t* tokens, const W* wte, const W* wpe, X* x, int64_t time,
                             int64_t width) {
  const int64_t row = blockIdx.x;
  const W* token = wte + tokens[row] * width;
  const W* position = wpe == nullptr ? nullptr : wpe + row % time * width;
  for (int64_t c = threadIdx.x; c < width; c += kThreads) {
    const float sum = value(token[c]) + (position == nullptr ? 0.0f : value(position[c]));
    put(sum, x[row * width + c]);
  }
}

// A block adds up one token's rows in their order, over some columns.
template <class X, class G>
__global__ void embed_backward_kernel(Tokens on, const X* dx, G* dwte, int64_t width) {
  if (static_cast<int32_t>(blockIdx.x) >= on.counts[0]) return;
  const int64_t c = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (c >= width) return;
  G& to = dwte[on.distinct[blockIdx.x] * width + c];
  float sum = value(to);
  const int32_t end = on.starts[blockIdx.x + 1];
  for (int32_t i = on.starts[blockIdx.x]; i < end; ++i) sum += value(dx[on.order[i] * width + c]);
  put(sum, to);
}

template <class X, class G>
__global__ void positions_backward_kernel(const X* dx, G* dwpe, int64_t batch, int64_t time,
                                          int64_t width, bool add) {
  const int64_t t = blockIdx.x;
  for (int64_t c = threadIdx.x; c < width; c += kThreads) {
    G& to = dwpe[t * width + c];
    float sum = add ? value(to) : 0.0f;
    for (int64_t b = 0; b < batch && t < time; ++b) sum += value(dx[(b * time + t) * width + c]);
    put(sum, to);
  }
}

}  // namespace

void embed(const Tokens& on, Tensor wte, Tensor wpe, Tensor x, void* stream) {
  with_element(wte.type, [&]<class W>(W) {
    with_element(x.type, [&]<class X>(X) {
      check(launch(embed_kernel<W, X>, dim3(static_cast<unsigned>(x.rows)), dim3(kThreads), stream,
                   on.inputs, wte.as<const W>(), wpe.as<const W>(), x.as<X>(), on.time, x.columns),
            "an embedding");
    });
  });
}

void embed_backward(const Tokens& on, Tensor dx, Tensor dwte, bool add_wte, Tensor dwpe, bool add,
                    void* stream) {
  if (!add_wte) {
    check(cudaMemsetAsync(dwte.data, 0, dwte.bytes(), static_cast<cudaStream_t>(stream)),
          "an embedding's gradient");
  }
  const int64_t width = dx.columns;
  with_element(dx.type, [&]<class X>(X) {
    with_element(dwte.type, [&]<class G>(G) {
      const dim3 grid(static_cast<unsigned>(dx.rows),
                      static_cast<unsigned>((width + kThreads - 1) / kThreads));
      check(launch(embed_backward_kernel<X, G>, grid, dim3(kThreads), stream, on, dx.as<const X>(),
                   dwte.as<G>(), width),
            "an embedding's gradient");
      if (!dwpe) return;
      check(launch(positions_backward_kernel<X, G>, dim3(static_cast<unsigned>(dwpe.rows)),
                   dim3(kThreads), stream, dx.as<const X>(), dwpe.as<G>(), on.batch, on.time, width,
                   add),
            "the positions' gradient");
    });
  });
}

}  // namespace gallop::gpt::cuda
