// SPDX-License-Identifier: MIT
// Both factors are packed first, each element once a block, in panels as the innermost loop reads
// them; then tiles of C are summed up in registers. Every element of C is summed in the same order
// whatever its tile, so neither tiles nor threads show in the bits.
#include "gpt/cpu/bf16_products.h"

#include "gallop/error.h"

namespace gallop::gpt::cpu {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::unsupported,
              "bf16 on the CPU: this one cannot multiply it, expected one with AVX512-BF16");
}

}  // namespace
}  // namespace gallop::gpt::cpu

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/pages.h"
#include "cpu/isa.h"
#include "cpu/thread_pool.h"

// By function, so that nothing else in this file needs the instructions.
#define GALLOP_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define GALLOP_BF16_INLINE GALLOP_BF16 __attribute__((always_inline)) inline

namespace gallop::gpt::cpu {
namespace {

using blas::Factor;
using blas::Index;
using Pair = uint32_t;  // bf16 of two neighbours in k, the first in the low half

constexpr Index kLanes = 16;                              // fp32 of a register
constexpr Index kRows = 12, kColumns = 2 * kLanes;        // of C in registers: 24 of 32
constexpr Index kDepth = 1024;                            // summed in registers, then added to C
constexpr Index kBlockRows = 1536, kBlockColumns = 3072;  // packed at a time
constexpr Index kTileRows = 4 * kRows, kTileColumns = 4 * kColumns;

constexpr Index pieces(Index n, Index of) { return (n + of - 1) / of; }

// Of k at a time: equal parts of whole registers, never 0.
constexpr Index depth_of(Index k) {
  const Index some = std::max<Index>(k, 1), whole = 2 * kLanes;
  return pieces(pieces(some, pieces(some, kDepth)), whole) * whole;
}

bool cpu_multiplies_bf16() {
  static const bool does = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
  }();
  return does;
}

// ---- packing: panels of Width rows of A or columns of B, for each pair of k one after the other

GALLOP_BF16_INLINE __mmask16 first_lanes(Index n) {
  return static_cast<__mmask16>(n >= kLanes ? 0xffff : n <= 0 ? 0 : (1 << n) - 1);
}

GALLOP_BF16_INLINE __m512i to_bf16(__m512 low, __m512 high) {
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// 16 registers of 16 become their transpose. All lanes by a mask: what stands for the others in GCC
// 12's plain intrinsics it then calls uninitialised.
GALLOP_BF16_INLINE void transpose(__m512i (&x)[16]) {
  constexpr __mmask16 kAll = 0xffff;
  constexpr __mmask8 kAll8 = 0xff;
  __m512i y[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_maskz_unpacklo_epi32(kAll, x[i], x[i + 1]);
    y[i + 1] = _mm512_maskz_unpackhi_epi32(kAll, x[i], x[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_maskz_unpacklo_epi64(kAll8, y[i], y[i + 2]);
    x[i + 1] = _mm512_maskz_unpackhi_epi64(kAll8, y[i], y[i + 2]);
    x[i + 2] = _mm512_maskz_unpacklo_epi64(kAll8, y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_maskz_unpackhi_epi64(kAll8, y[i + 1], y[i + 3]);
  }
  // Now x[4 i + j] holds, in its quarter q, column 4 q + j of rows 4 i to 4 i + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    y[j] = _mm512_maskz_shuffle_i32x4(kAll, x[j], x[j + 4], 0x88);
    y[j + 4] = _mm512_maskz_shuffle_i32x4(kAll, x[j], x[j + 4], 0xdd);
    y[j + 8] = _mm512_maskz_shuffle_i32x4(kAll, x[j + 8], x[j + 12], 0x88);
    y[j + 12] = _mm512_maskz_shuffle_i32x4(kAll, x[j + 8], x[j + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    x[j] = _mm512_maskz_shuffle_i32x4(kAll, y[j], y[j + 8], 0x88);
    x[j + 8] = _mm512_maskz_shuffle_i32x4(kAll, y[j], y[j + 8], 0xdd);
    x[j + 4] = _mm512_maskz_shuffle_i32x4(kAll, y[j + 4], y[j + 12], 0x88);
    x[j + 12] = _mm512_maskz_shuffle_i32x4(kAll, y[j + 4], y[j + 12], 0xdd);
  }
}

// From rows in which k runs: `rows` of them, the rest of the panel is zero.
template <Index Width>
GALLOP_BF16 void pack_rows(const float* from, Index stride, Index rows, Index depth, Pair* to) {
  for (Index first = 0; first < Width; first += kLanes) {
    const __mmask16 kept = first_lanes(Width - first);
    for (Index k = 0; k < depth; k += 2 * kLanes) {
      const __mmask16 low = first_lanes(depth - k), high = first_lanes(depth - k - kLanes);
      __m512i x[16];
#pragma GCC unroll 16
      for (Index r = 0; r < 16; ++r) {
        const float* row = from + (first + r) * stride + k;
        x[r] = first + r < rows ? to_bf16(_mm512_maskz_loadu_ps(low, row),
                                          _mm512_maskz_loadu_ps(high, row + kLanes))
                                : _mm512_setzero_si512();
      }
      transpose(x);
      Pair* out = to + k / 2 * Width + first;
      const Index pairs = (depth - k + 1) / 2;
#pragma GCC unroll 16
      for (Index p = 0; p < 16; ++p) {
        if (p < pairs) _mm512_mask_storeu_epi32(out + p * Width, kept, x[p]);
      }
    }
  }
}

// From rows that are k: `columns` of each, the rest of the panel is zero.
template <Index Width>
GALLOP_BF16 void pack_columns(const float* from, Index stride, Index columns, Index depth,
                              Pair* to) {
  const __m512i alternate =
      _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                       21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  for (Index k = 0; k < depth; k += 2) {
    const float* row = from + k * stride;
    for (Index first = 0; first < Width; first += kLanes) {
      const __mmask16 kept = first_lanes(Width - first), there = first_lanes(columns - first);
      const __m512 even = _mm512_maskz_loadu_ps(there & kept, row + first);
      const __m512 odd = k + 1 < depth ? _mm512_maskz_loadu_ps(there & kept, row + stride + first)
                                       : _mm512_setzero_ps();
      _mm512_mask_storeu_epi32(to + k / 2 * Width + first, kept,
                               _mm512_permutexvar_epi16(alternate, to_bf16(even, odd)));
    }
  }
}

// A factor's block as panels: `count` rows of A or columns of B from `first` on, `depth` of k.
template <Index Width>
struct Panels {
  static constexpr Index kTogether = 128 / Width;  // panels: long reads where rows are k

  Factor<float> from;
  bool k_runs;  // along the rows of memory
  Index first, count, start, depth;
  Pair* to = nullptr;

  Index pairs() const { return (depth + 1) / 2; }
  Index groups() const { return pieces(count, kTogether * Width); }
  Index room() const { return pieces(count, Width) * pairs() * Width; }
  const Pair* panel(Index i) const { return to + i * pairs() * Width; }

  void pack(Index group) const {
    const Index begin = group * kTogether * Width, end = std::min(count, begin + kTogether * Width);
    // In short stretches of k, so that pages and lines of the source are used while they are near.
    const Index stretch = k_runs ? depth : 64;
    for (Index k = 0; k < depth; k += stretch) {
      const Index here = std::min(stretch, depth - k);
      for (Index lane = begin; lane < end; lane += Width) {
        Pair* out = to + lane * pairs() + k / 2 * Width;
        const Index lanes = std::min(Width, count - lane);
        if (k_runs) {
          pack_rows<Width>(from.data + (first + lane) * from.stride + start + k, from.stride, lanes,
                           here, out);
        } else {
          pack_columns<Width>(from.data + (start + k) * from.stride + first + lane, from.stride,
                              lanes, here, out);
        }
      }
    }
  }
};

// ---- sums: kRows x kColumns of C = A B + beta C, or the first of them that are there

GALLOP_BF16 void sum(Index pairs, const Pair* a, const Pair* b, float beta, float* c, Index stride,
                     Index rows, Index columns) {
  __m512 sums[kRows][2];
#pragma GCC unroll 12
  for (Index r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
  for (Index p = 0; p < pairs; ++p, a += kRows, b += kColumns) {
    const auto left = (__m512bh)_mm512_load_si512(b);
    const auto right = (__m512bh)_mm512_load_si512(b + kLanes);
#pragma GCC unroll 12
    for (Index r = 0; r < kRows; ++r) {
      const auto both = (__m512bh)_mm512_set1_epi32(static_cast<int>(a[r]));
      sums[r][0] = _mm512_dpbf16_ps(sums[r][0], both, left);
      sums[r][1] = _mm512_dpbf16_ps(sums[r][1], both, right);
    }
  }
  const __mmask16 there[2] = {first_lanes(columns), first_lanes(columns - kLanes)};
  const __m512 scale = _mm512_set1_ps(beta);
#pragma GCC unroll 12
  for (Index r = 0; r < kRows; ++r) {
    if (r >= rows) break;
#pragma GCC unroll 2
    for (Index half = 0; half < 2; ++half) {
      float* to = c + r * stride + half * kLanes;
      if (beta != 0) {
        const __m512 before = _mm512_maskz_loadu_ps(there[half], to);
        sums[r][half] = _mm512_fmadd_ps(scale, before, sums[r][half]);
      }
      _mm512_mask_storeu_ps(to, there[half], sums[r][half]);
    }
  }
}

// ---- the calling thread's room for what is packed

class Room {
 public:
  Room() = default;
  ~Room() { detail::unmap(pages_); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  Pair* take(Index pairs) {
    const size_t bytes = static_cast<size_t>(pairs) * sizeof(Pair);
    if (bytes > bytes_) {
      detail::unmap(pages_);
      bytes_ = 0;
      pages_ = detail::map_pages(bytes);
      if (pages_.data == nullptr) {
        throw Error(ErrorCode::out_of_memory,
                    std::to_string(bytes) + " bytes for packed matrices were not to be had");
      }
      bytes_ = bytes;
    }
    return static_cast<Pair*>(pages_.data);
  }

 private:
  detail::Pages pages_;
  size_t bytes_ = 0;
};

template <class F>
void share_out(int threads, Index count, F f) {
  std::atomic<Index> next{0};
  auto work = [&](int, int) {
    for (Index i = next++; i < count; i = next++) f(i);
  };
  gallop::cpu::ThreadPool::instance().run(static_cast<int>(std::min<Index>(threads, count)), work);
}

void multiply(int threads, const Panels<kRows>& left, const Panels<kColumns>& right, float beta,
              float* c, Index stride) {
  const Index across = pieces(right.count, kTileColumns);
  share_out(threads, pieces(left.count, kTileRows) * across, [&](Index tile) {
    const Index top = tile / across * kTileRows, side = tile % across * kTileColumns;
    const Index bottom = std::min(left.count, top + kTileRows);
    const Index end = std::min(right.count, side + kTileColumns);
    for (Index column = side; column < end; column += kColumns) {
      for (Index row = top; row < bottom; row += kRows) {
        sum(left.pairs(), left.panel(row / kRows), right.panel(column / kColumns), beta,
            c + row * stride + column, stride, bottom - row, end - column);
      }
    }
  });
}

}  // namespace

bool has_bf16_products() {
  if (!cpu_multiplies_bf16()) return false;
  const char* forced = std::getenv("GALLOP_FORCE_ISA");
  if (forced == nullptr || *forced == 0) return true;  // whatever else this build is made for
  return std::string_view("avx512") ==
         gallop::cpu::toolkits()[static_cast<size_t>(gallop::cpu::choose_isa())]->isa;
}

void product_bf16(int threads, Index m, Index n, Index k, Factor<float> a, Factor<float> b,
                  float beta, float* c, Index stride) {
  if (!cpu_multiplies_bf16()) refuse();
  if (m <= 0 || n <= 0) return;
  const Index depth = depth_of(k);
  Panels<kRows> left{a, !a.transposed, 0, std::min(m, kBlockRows), 0, std::min(k, depth)};
  Panels<kColumns> right{b, b.transposed, 0, std::min(n, kBlockColumns), 0, std::min(k, depth)};
  thread_local Room room;
  right.to = room.take(left.room() + right.room());
  left.to = right.to + right.room();
  for (right.first = 0; right.first < n; right.first += kBlockColumns) {
    right.count = std::min(kBlockColumns, n - right.first);
    // At least once: without terms, C becomes beta C.
    for (Index start = 0; start == 0 || start < k; start += depth) {
      left.start = right.start = start;
      left.depth = right.depth = std::min(depth, k - start);
      for (left.first = 0; left.first < m; left.first += kBlockRows) {
        left.count = std::min(kBlockRows, m - left.first);
        const Index fresh = left.first == 0 ? right.groups() : 0;
        share_out(threads, fresh + left.groups(),
                  [&](Index i) { i < fresh ? right.pack(i) : left.pack(i - fresh); });
        multiply(threads, left, right, start == 0 ? beta : 1, c + left.first * stride + right.first,
                 stride);
      }
    }
  }
}

}  // namespace gallop::gpt::cpu

#else

namespace gallop::gpt::cpu {

bool has_bf16_products() { return false; }

void product_bf16(int, blas::Index, blas::Index, blas::Index, blas::Factor<float>,
                  blas::Factor<float>, float, float*, blas::Index) {
  refuse();
}

}  // namespace gallop::gpt::cpu

#endif
