// SPDX-License-Identifier: MIT
#include "cuda/arrays.h"
#include "cuda/launch.cuh"
#include "cuda/step.cuh"
#include "cuda/vectors.cuh"

namespace gallop::cuda {
namespace {

using cpu::Op;
using cpu::Operand;

constexpr int kPassThreads = 256;
constexpr Index kMostBlocks = 65536;

__device__ Index first_of_thread() {
  return static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ Index threads_in_all() { return static_cast<Index>(gridDim.x) * blockDim.x; }

// An operand as a thread sees it.
template <class T>
struct Values {
  const T* data;
  T value;
  __device__ explicit Values(const Operand& o)
      : data(static_cast<const T*>(o.data)),
        value(static_cast<T>(o.scalar != nullptr ? *o.scalar : o.value)) {}
  __device__ T operator[](Index i) const { return data != nullptr ? data[i] : value; }
};

template <Op O, class T>
__device__ __forceinline__ T result(T a, T b, T c) {
  if constexpr (O == Op::add) return a + b;
  if constexpr (O == Op::sub) return a - b;
  if constexpr (O == Op::mul) return a * b;
  if constexpr (O == Op::div) return a / b;
  if constexpr (O == Op::fma) return gallop::fma(a, b, c);
  if constexpr (O == Op::sqrt) return gallop::sqrt(a);
  if constexpr (O == Op::abs) return gallop::abs(a);
  if constexpr (O == Op::sign) return gallop::sign(a);
  if constexpr (O == Op::neg) return -a;
  if constexpr (O == Op::min) return gallop::min(a, b);
  if constexpr (O == Op::max) return gallop::max(a, b);
  if constexpr (O == Op::select) return a != 0 ? b : c;
  if constexpr (O == Op::copy) return a;
}

template <Op O, class T>
__global__ void pass(T* out, Operand x, Operand y, Operand z, Index n) {
  const Values<T> a(x), b(y), c(z);
  for (Index i = first_of_thread(); i < n; i += threads_in_all()) {
    out[i] = result<O>(a[i], b[i], c[i]);
  }
}

__device__ bool is_left_alone(const Step& s, const Target& target) {
  if (target.if_set != nullptr && *target.if_set == 0) return true;
  if (target.if_zero != nullptr && *target.if_zero != 0) return true;
  return is_skipped(s) || (target.stepped && s.progress[target.tensor].steps == 0);
}

template <class T>
__global__ void write(const __grid_constant__ Step s, Target target, T* out, Operand x, Index n) {
  if (is_left_alone(s, target)) return;
  const Values<T> a(x);
  for (Index i = first_of_thread(); i < n; i += threads_in_all()) out[i] = a[i];
}

// The codecs count elements of a chunk in an int.
constexpr Index kSpan = 1 << 20;

__global__ void decode_array(const void* data, const void* low, Storage storage, float* out,
                             Index n) {
  for (Index i = first_of_thread(); i < n; i += threads_in_all()) {
    const Index base = i / kSpan * kSpan;
    const Index low_bytes = storage == Storage::bf16_remainder ? 2 : 4;
    float value[1];
    Half rest[1];
    fetch_param(static_cast<const char*>(data) + base * bytes_of(storage),
                static_cast<const char*>(low) + base * low_bytes, storage,
                static_cast<int>(i - base), value, rest);
    decode_param(storage, value, rest);
    out[i] = value[0];
  }
}

__global__ void encode_array(const __grid_constant__ Step s, Target target, Bits64 number,
                             void* data, void* low, Storage storage, const float* in, Index n) {
  if (is_left_alone(s, target)) return;
  const unsigned tensor = target.tensor;
  const Bits64 key = combine(combine(combine(s.control->seed, s.tensors[tensor].id),
                                     static_cast<Bits64>(s.progress[tensor].steps)),
                             number);
  for (Index i = first_of_thread(); i < n; i += threads_in_all()) {
    const Index base = i / kSpan * kSpan;
    const Index low_bytes = storage == Storage::bf16_remainder ? 2 : 4;
    const float value[1] = {in[i]};
    store_param(advanced(data, base * bytes_of(storage)), advanced(low, base * low_bytes), storage,
                static_cast<int>(i - base), Random{key, base}, value);
  }
}

unsigned blocks_for(Index n) {
  const Index blocks = (n + kPassThreads - 1) / kPassThreads;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

template <class T, int O = 0>
cudaError_t launch_op(Op op, T* out, const Operand* in, Index n, cudaStream_t stream) {
  constexpr Op kOp = static_cast<Op>(O);
  if (op == kOp) {
    return launch(&pass<kOp, T>, blocks_for(n), kPassThreads, stream, out, in[0], in[1], in[2], n);
  } else if constexpr (kOp != Op::copy) {
    return launch_op<T, O + 1>(op, out, in, n, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch_pass(bool f64, Op op, void* out, const Operand* in, Index n,
                        cudaStream_t stream) {
  return f64 ? launch_op(op, static_cast<double*>(out), in, n, stream)
             : launch_op(op, static_cast<float*>(out), in, n, stream);
}

cudaError_t launch_write(bool f64, const Step& step, Target target, void* out, const Operand& in,
                         Index n, cudaStream_t stream) {
  const dim3 grid = blocks_for(n), block = kPassThreads;
  return f64 ? launch(&write<double>, grid, block, stream, step, target, static_cast<double*>(out),
                      in, n)
             : launch(&write<float>, grid, block, stream, step, target, static_cast<float*>(out),
                      in, n);
}

cudaError_t launch_decode(const void* data, const void* low, Storage storage, float* out, Index n,
                          cudaStream_t stream) {
  return launch(&decode_array, blocks_for(n), kPassThreads, stream, data, low, storage, out, n);
}

cudaError_t launch_encode(const Step& step, Target target, Bits64 number, void* data, void* low,
                          Storage storage, const float* in, Index n, cudaStream_t stream) {
  return launch(&encode_array, blocks_for(n), kPassThreads, stream, step, target, number, data, low,
                storage, in, n);
}

}  // namespace gallop::cuda
