// SPDX-License-Identifier: MIT
// Kernels that no rule is needed for: the norm, zeroing, masters, small changes to device memory.
#include "cuda/common.h"
#include "cuda/launch.cuh"
#include "cuda/step.cuh"
#include "cuda/vectors.cuh"

namespace gallop::cuda {
namespace {

// The sum of the block's values, in an order that does not depend on timing; in thread 0.
__device__ double block_sum(double value) {
  __shared__ double sums[kThreads];
  sums[threadIdx.x] = value;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  __syncthreads();
  return threadIdx.x == 0 ? sums[0] : 0;
}

constexpr int kWarp = 32;

// Sums squares of gradients as the update will see them.
template <class T>
struct Squares {
  T scale, limit;
  double sum = 0;

  __device__ __forceinline__ void add(T g) {
    T x = g * scale;
    // x * 0 is NaN for an infinity, which the clamp would hide.
    if (limit < static_cast<T>(kInfinity)) x = detail::clamped(x, T(1), limit) + x * 0;
    const auto wide = static_cast<double>(x);
    sum = ::fma(wide, wide, sum);
  }
};

template <class T, int V>
__device__ __forceinline__ void fetch_grad(const void* grad, Storage storage, int i, T (&g)[V]) {
  if constexpr (std::is_same_v<T, double>) {
    load(grad, i, g);
  } else {
    fetch(grad, is_16_bit(storage), i, g);
  }
}

template <class T, int V>
__device__ __forceinline__ void add_all(Storage storage, T (&g)[V], Squares<T>& squares) {
  if constexpr (!std::is_same_v<T, double>) decode(storage, g);
#pragma unroll
  for (int k = 0; k < V; ++k) squares.add(g[k]);
}

// Of n gradients from `grad` on, by one warp; in lane 0. Which elements a lane adds up, and in
// which order, does not depend on alignment.
template <class T>
__device__ double chunk_square_sum(const void* grad, Storage storage, int n, double scale,
                                   double clip_value) {
  constexpr int kTogether = 4;  // vectors under way at a time
  constexpr int kStride = kWarp * kVector;
  const T limit = clip_value == 0 ? static_cast<T>(kInfinity) : static_cast<T>(clip_value);
  Squares<T> squares{static_cast<T>(scale), limit};
  int i = threadIdx.x % kWarp * kVector;
  const bool aligned = reinterpret_cast<Bits64>(grad) % 16 == 0;
  for (; aligned && i + (kTogether - 1) * kStride + kVector <= n; i += kTogether * kStride) {
    alignas(16) T g[kTogether][kVector];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) fetch_grad(grad, storage, i + u * kStride, g[u]);
#pragma unroll
    for (int u = 0; u < kTogether; ++u) add_all(storage, g[u], squares);
  }
  for (; i < n; i += kStride) {
    for (int k = i; k < n && k < i + kVector; ++k) {
      T g[1];
      fetch_grad(grad, storage, k, g);
      add_all(storage, g, squares);
    }
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    squares.sum += __shfl_down_sync(~0u, squares.sum, distance);
  }
  return squares.sum;
}

__device__ double chunk_norm(const Step& s, const Chunk& chunk, double divisor) {
  const Tensor& t = s.tensors[chunk.tensor];
  void* grad = s.grads[chunk.tensor];
  if (grad == nullptr) return 0;
  const Index first = chunk.index * s.chunk_elements, rest = t.n - first;
  const int n = static_cast<int>(rest < s.chunk_elements ? rest : s.chunk_elements);
  void* at = advanced(grad, first * bytes_of(t.grad_storage));
  return t.grad_storage == Storage::f64
             ? chunk_square_sum<double>(at, t.grad_storage, n, 1 / divisor, s.clip_value)
             : chunk_square_sum<float>(at, t.grad_storage, n, 1 / divisor, s.clip_value);
}

__device__ void conclude(const Step& s, double sum) {
  Control& c = *s.control;
  c.norm = ::sqrt(sum);
  c.skip = s.skip_nonfinite && !isfinite(sum);
  const double factor = s.clip_norm / (c.norm + 1e-6);  // as torch
  c.factor = s.clip_norm > 0 && !(factor >= 1) ? factor : 1;
  c.ticket = c.taken = 0;
}

__global__ void __launch_bounds__(kThreads) square_sum(const __grid_constant__ Step s) {
  const double divisor = grad_divisor(s);
  const unsigned lane = threadIdx.x % kWarp, chunks = s.last_chunk - s.first_chunk;
  // Chunks from the last to the first: the update begins with the first, which then is in cache.
  const unsigned warps = gridDim.x * (kThreads / kWarp);
  unsigned turn = blockIdx.x + threadIdx.x / kWarp * gridDim.x;
  while (turn < chunks) {
    const unsigned c = chunks - 1 - turn;
    const double sum = chunk_norm(s, s.chunks[s.first_chunk + c], divisor);
    if (lane == 0) {
      s.partials[c] = sum;
      turn = warps + atomicAdd(&s.control->taken, 1u);
    }
    turn = __shfl_sync(~0u, turn, 0);
  }
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(&s.control->ticket, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  double sum = 0;
#pragma unroll 8
  for (unsigned c = threadIdx.x; c < chunks; c += kThreads) sum += __ldcg(s.partials + c);
  sum = block_sum(sum);
  if (threadIdx.x == 0) conclude(s, sum);
}

__global__ void __launch_bounds__(kThreads) zero_grads(const __grid_constant__ Step s) {
  if (is_skipped(s)) return;
  for (unsigned c = s.first_chunk + blockIdx.x; c < s.last_chunk; c += gridDim.x) {
    const Chunk chunk = s.chunks[c];
    const Tensor& t = s.tensors[chunk.tensor];
    char* grad = static_cast<char*>(s.grads[chunk.tensor]);
    if (grad == nullptr) continue;
    const Index width = t.grad_storage == Storage::f64 ? 8 : t.grad_storage == Storage::f32 ? 4 : 2;
    const Index first = chunk.index * s.chunk_elements;
    const Index end = first + s.chunk_elements, last = end < t.n ? end : t.n;
    for (Index i = first + threadIdx.x; i < last; i += kThreads) {
      if (width == 8) reinterpret_cast<double*>(grad)[i] = 0;
      if (width == 4) reinterpret_cast<float*>(grad)[i] = 0;
      if (width == 2) reinterpret_cast<Half*>(grad)[i] = 0;
    }
  }
}

__global__ void fill_masters(const Half* in, float* out, Index n, bool bf16) {
  const Index stride = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    out[i] = bf16 ? from_bf16(in[i]) : from_f16(in[i]);
  }
}

__global__ void change_grads(void** grads, const __grid_constant__ GradChanges changes) {
  const unsigned i = threadIdx.x;
  if (i < changes.count) grads[changes.index[i]] = changes.grad[i];
}

__global__ void change_group(Group* group, const __grid_constant__ Group value) { *group = value; }

constexpr int kMirrored = 64;  // sides of what a block mirrors

__global__ void mirror(Half* squares, Index n, Index side, Index stride) {
  __shared__ Half tile[kMirrored][kMirrored + 2];
  const Index row = blockIdx.x * kMirrored, column = blockIdx.y * kMirrored;
  if (row / side <= column / side) return;
  Half* square = squares + blockIdx.z * stride;
  constexpr unsigned kPairs = kMirrored / 2;
  for (unsigned i = threadIdx.x; i < kMirrored * kPairs; i += blockDim.x) {
    const unsigned r = i / kPairs, c = i % kPairs * 2;
    *reinterpret_cast<ushort2*>(&tile[r][c]) =
        *reinterpret_cast<const ushort2*>(square + (row + r) * n + column + c);
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < kMirrored * kPairs; i += blockDim.x) {
    const unsigned r = i / kPairs, c = i % kPairs * 2;
    *reinterpret_cast<ushort2*>(square + (column + r) * n + row + c) =
        make_ushort2(tile[c][r], tile[c + 1][r]);
  }
}

// A warp takes a row at a time; blockIdx.y is the member.
template <class T>
__global__ void scale_rows(const NormTensor* norms, const unsigned* members, int value, const T* in,
                           T* out, Index apart) {
  const NormTensor& n = norms[members[blockIdx.y]];
  const Index columns = n.view.columns, rows = n.view.batches * n.view.rows;
  in += blockIdx.y * apart;
  out += blockIdx.y * apart;
  const unsigned warps = gridDim.x * blockDim.x / 32;
  const unsigned lane = threadIdx.x % 32;
  for (Index r = (blockIdx.x * blockDim.x + threadIdx.x) / 32; r < rows; r += warps) {
    const double factor = n.row_values[value][r];
    if constexpr (sizeof(T) == 2) {
      const float by = static_cast<float>(factor);
      if (columns % 8 == 0 && apart % 8 == 0) {
        const uint4* from = reinterpret_cast<const uint4*>(in + r * columns);
        uint4* to = reinterpret_cast<uint4*>(out + r * columns);
        for (Index c = lane; c < columns / 8; c += 32) {
          uint4 eight = from[c];
          Half* halves = reinterpret_cast<Half*>(&eight);
#pragma unroll
          for (int k = 0; k < 8; ++k) halves[k] = to_bf16_nearest(from_bf16(halves[k]) * by);
          to[c] = eight;
        }
        continue;
      }
      for (Index c = lane; c < columns; c += 32) {
        out[r * columns + c] = to_bf16_nearest(from_bf16(in[r * columns + c]) * by);
      }
    } else {
      for (Index c = lane; c < columns; c += 32)
        out[r * columns + c] = in[r * columns + c] * factor;
    }
  }
}

__global__ void count_skipped(Control* control) { ++control->skipped; }

}  // namespace

const void* square_sum_kernel() { return address_of(&square_sum); }
const void* zero_grads_kernel() { return address_of(&zero_grads); }

cudaError_t launch_fill_masters(const void* in, float* out, Index n, bool bf16, void* stream) {
  const Index blocks = (n + 255) / 256;
  return launch(&fill_masters, static_cast<unsigned>(blocks < 65536 ? blocks : 65536), 256, stream,
                static_cast<const Half*>(in), out, n, bf16);
}

cudaError_t launch_change_grads(void** grads, const GradChanges& changes, void* stream) {
  return launch(&change_grads, 1, GradChanges::kMost, stream, grads, changes);
}

cudaError_t launch_change_group(Group* group, const Group& value, void* stream) {
  return launch(&change_group, 1, 1, stream, group, value);
}

cudaError_t launch_mirror(void* squares, Index n, Index side, Index stride, unsigned count,
                          void* stream) {
  const auto tiles = static_cast<unsigned>(n / kMirrored);
  return launch(&mirror, dim3(tiles, tiles, count), 256, stream, static_cast<Half*>(squares), n,
                side, stride);
}

cudaError_t launch_scale_rows(const NormTensor* norms, const unsigned* members, unsigned count,
                              int value, const void* in, void* out, Index apart, bool wide,
                              void* stream) {
  const dim3 grid(64, count);
  return wide ? launch(&scale_rows<double>, grid, 256, stream, norms, members, value,
                       static_cast<const double*>(in), static_cast<double*>(out), apart)
              : launch(&scale_rows<Half>, grid, 256, stream, norms, members, value,
                       static_cast<const Half*>(in), static_cast<Half*>(out), apart);
}

cudaError_t launch_count_skipped(Control* control, void* stream) {
  return launch(&count_skipped, 1, 1, stream, control);
}

}  // namespace gallop::cuda
