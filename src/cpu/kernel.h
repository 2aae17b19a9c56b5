// SPDX-License-Identifier: MIT
// The contract between the CPU backend and the objects compiled once per instruction set. Includes
// nothing of std, so that no library template is instantiated with another instruction set.
#pragma once

#include "core/random.h"
#include "core/storage.h"
#include "core/traits.h"

namespace gallop::cpu {

using Index = long long;

using gallop::kBlock;
using gallop::kStorages;
using gallop::Storage;

// Plain loops prefetch each stream this far ahead, once per tile. A tile of one cache line is too
// short for g++ to vectorise every loop.
inline constexpr int kAheadBytes = 2560, kTileBytes = 128;

// What to prefetch before elements i and on are updated. Near the end that is the beginning of the
// piece that comes next; never anything past it, which may be another thread's share.
GALLOP_FN Index ahead_of(Index i, Index n, Index ahead, Index tile, Index next) {
  return i + ahead + tile <= n ? i + ahead : i + ahead - n + next;
}

// Up to kBlock consecutive elements of one tensor. data and low point at the first of them; low is
// the master, the remainder, or the scale (4 bits: two).
struct Block {
  void* data;
  void* low;
  int n;
  Bits32 key;  // of the random bits for this block, or its dither
};

struct Codec {
  int data_bytes, low_bytes;                  // of kBlock elements
  void (*load)(const Block&, float* values);  // fills kBlock values, zeros past n
  // False: nothing was stored, since a value that is to share a scale is not finite.
  bool (*store)(const Block&, const float* values);
};

struct KernelArgs {
  void* param;
  void* low;
  const void* grad;
  void* state[detail::kMaxStates];
  void* scale[detail::kMaxStates];  // of quantised states
  Index n;
  Index first_block;  // index of the first block within the tensor
  Index next;         // where the work goes on after these n, counted from their first; 0: nowhere
  const double* coef;
  // g -> clamp(g * scale, -limit, limit) * factor
  double grad_scale, grad_limit, grad_factor;
  const Codec* param_codec;
  const Codec* grad_codec;
  const Codec* state_codec[detail::kMaxStates];
  Bits64 param_key, state_key[detail::kMaxStates];
  Bits32 state_dither[detail::kMaxStates];
  bool plain_param, plain_grad;  // fp32, aligned to its size
  unsigned quantised;            // bit j: state j
  bool resets;                   // as bitsandbytes does where a gradient is not finite
  long long*
      not_finite;  // elements whose quantised state, or gradient if it resets, was not; added to
  const struct NormArgs* norms;
};

// What a pass of a rule with norms is given besides: elements [first, first + n) of the tensor.
struct NormArgs {
  Index first, rows, columns;  // of one matrix
  const double* tensor;
  const double* row[detail::kMaxRowValues];      // by row
  const void* column[detail::kMaxColumnValues];  // by column, in the type of the arithmetic
  Index first_row, first_column;                 // where the sums below begin
  double *sums, *row_sums[detail::kMaxSums], *column_sums[detail::kMaxSums];  // added to
};

using Kernel = void (*)(const KernelArgs&);

// f32: parameter, gradient and states all plain fp32; f64 likewise; blocks: any mixture; quantised:
// with states in it that share scales (on the CPU, the same kernels).
enum class Path { f32, f64, blocks, quantised };
constexpr bool in_blocks(Path p) { return p >= Path::blocks; }

struct RuleKernels {
  const char* isa;
  const Kernel* table;  // [entry][variant][path]
};

// Passes of mode unfused: one arithmetic operation over whole arrays.
struct Operand {
  const void* data;  // nullptr: the same `value` everywhere
  double value;
  const double* scalar;  // on a GPU: where the value is found; or nullptr
};
// select: the second where the first is not zero, else the third.
enum class Op { add, sub, mul, div, fma, sqrt, abs, sign, neg, min, max, select, copy };
using ArrayOp = void (*)(Op, void* out, const Operand* in, Index first, Index n);

// What every instruction set provides besides the rules.
struct Toolkit {
  const char* isa;
  Codec codecs[kStorages];
  // Sum of squares of clamp(g * scale, ±limit) over n elements, n a multiple of kBlock except at
  // the end of a tensor; the same bits on every instruction set. Not finite if an element is not.
  double (*square_sum)(const Codec*, const void* data, Index n, const double* scale_and_limit);
  double (*square_sum_f64)(const void* data, Index n, const double* scale_and_limit);
  ArrayOp array_f32, array_f64;
  // Bandwidth ceilings: out = in; reads of four arrays with writes of three of them; and reads.
  void (*copy)(void* out, const void* in, Index bytes);
  void (*read4_write3)(float* a, const float* b, float* c, float* d, Index n, Index next);
  float (*read2)(const float* a, const float* b, Index n);
};

}  // namespace gallop::cpu
