// SPDX-License-Identifier: MIT
#include "cuda/arrays.h"
#include "cuda/launch.cuh"
#include "cuda/quantised.cuh"
#include "cuda/rough.cuh"
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

template <Op O>
__global__ void rough_pass(float* out, Operand x, Operand y, Index n) {
  const Values<float> a(x), b(y);
  for (Index i = first_of_thread(); i < n; i += threads_in_all()) {
    out[i] = O == Op::div ? rough::quotient(a[i], b[i]) : rough::root(a[i]);
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

// A warp takes 256 elements, eight a lane.
constexpr int kLaneCodes = 8;

__global__ void decode_code_array(const void* data, const float* scales, Storage storage,
                                  float* out, Index n) {
  for (Index i = first_of_thread() * kLaneCodes; i < n; i += threads_in_all() * kLaneCodes) {
    const int count = static_cast<int>(n - i < kLaneCodes ? n - i : kLaneCodes);
    Codes<kLaneCodes> codes;
    float x[kLaneCodes];
    fetch_few_codes(data, is_4_bit(storage), i, count, codes);
    decode_codes(storage, codes, scales[i / scaled_block(storage)], x);
    for (int k = 0; k < count; ++k) out[i + k] = x[k];
  }
}

__global__ void encode_code_array(const __grid_constant__ Step s, Target target, Bits64 number,
                                  void* data, float* scales, Storage storage, const float* in,
                                  Index n) {
  if (is_left_alone(s, target)) return;
  const Bits32 dither = dither_of_stream(
      dither_of(s.control->seed, s.tensors[target.tensor].id, s.progress[target.tensor].steps),
      static_cast<Bits32>(number));
  const Index lane = threadIdx.x % 32;
  for (Index base = first_of_thread() / 32 * kBlock; base < n;
       base += threads_in_all() / 32 * kBlock) {
    const Index i = base + lane * kLaneCodes, rest = n - i;
    const int count = static_cast<int>(rest < 0 ? 0 : rest < kLaneCodes ? rest : kLaneCodes);
    float x[kLaneCodes];
    for (int k = 0; k < kLaneCodes; ++k) x[k] = k < count ? in[i + k] : 0;
    const Bits32 own = largest_of(x);
    const float scale = scale_of(is_4_bit(storage) ? half_warp_largest(own) : warp_largest(own));
    Codes<kLaneCodes> codes;
    encode_codes(storage, x, scale, dither_at(dither, static_cast<Bits32>(i)), codes);
    store_codes(data, is_4_bit(storage), i, count, codes);
    if (count > 0 && i % scaled_block(storage) == 0) scales[i / scaled_block(storage)] = scale;
  }
}

__global__ void settle(const __grid_constant__ Step s, Target target,
                       const __grid_constant__ Settled all, Index n) {
  if (is_left_alone(s, target)) return;
  for (Index i = first_of_thread(); i < n; i += threads_in_all()) {
    const bool resets = all.grad != nullptr && !is_finite(all.grad[i]);
    if (resets) all.param[i] = all.before[i];
    bool dropped = resets;
    for (int j = 0; j < detail::kMaxStates; ++j) {
      float* state = all.state[j];
      if (state == nullptr || (!resets && is_finite(state[i]))) continue;
      state[i] = 0;
      dropped = true;
    }
    if (dropped) atomicAdd(&s.control->not_finite, Bits64{1});
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

cudaError_t launch_pass(Arithmetic arithmetic, Op op, void* out, const Operand* in, Index n,
                        cudaStream_t stream) {
  if (arithmetic == Arithmetic::f64) {
    return launch_op(op, static_cast<double*>(out), in, n, stream);
  }
  const bool rough = arithmetic == Arithmetic::rough && (op == Op::div || op == Op::sqrt);
  if (!rough) return launch_op(op, static_cast<float*>(out), in, n, stream);
  return launch(op == Op::div ? &rough_pass<Op::div> : &rough_pass<Op::sqrt>, blocks_for(n),
                kPassThreads, stream, static_cast<float*>(out), in[0], in[1], n);
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
  if (is_quantised(storage)) {
    return launch(&decode_code_array, blocks_for((n + kLaneCodes - 1) / kLaneCodes), kPassThreads,
                  stream, data, static_cast<const float*>(low), storage, out, n);
  }
  return launch(&decode_array, blocks_for(n), kPassThreads, stream, data, low, storage, out, n);
}

cudaError_t launch_encode(const Step& step, Target target, Bits64 number, void* data, void* low,
                          Storage storage, const float* in, Index n, cudaStream_t stream) {
  if (is_quantised(storage)) {
    return launch(&encode_code_array, blocks_for((n + kLaneCodes - 1) / kLaneCodes), kPassThreads,
                  stream, step, target, number, data, static_cast<float*>(low), storage, in, n);
  }
  return launch(&encode_array, blocks_for(n), kPassThreads, stream, step, target, number, data, low,
                storage, in, n);
}

cudaError_t launch_settle(const Step& step, Target target, const Settled& all, Index n,
                          cudaStream_t stream) {
  return launch(&settle, blocks_for(n), kPassThreads, stream, step, target, all, n);
}

}  // namespace gallop::cuda
