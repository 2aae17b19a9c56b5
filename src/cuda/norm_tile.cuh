// SPDX-License-Identifier: MIT
// What a warp does with a tile in one pass of a rule with norms.
#pragma once

#include "cuda/coefs.cuh"
#include "cuda/norm_data.h"
#include "cuda/quantised.cuh"
#include "cuda/vectors.cuh"

namespace gallop::cuda {
namespace {

inline constexpr int kSlots = kTileColumns / (32 * kVector);  // vectors of a lane in a tile's row

// One warp goes through rows of a tile, each lane through every 32nd vector of a row: who adds what
// up, and in which order, depends on the tensor's shape alone.
template <class R, int P, bool Matrix, unsigned Present, Path A>
struct TileWorker {
  using T = detail::Choose<A == Path::f64, double, float>;
  static constexpr int kN = detail::kStates<R>, kM = detail::sum_count<R>();
  static constexpr Pass kPass = R::passes[P];
  static constexpr bool kWrites = (kPass.writes & kWritesParam) != 0;
  static constexpr bool reads(int j) { return ((Present & kPass.reads) >> j & 1) != 0; }
  static constexpr bool writes(int j) { return ((Present & kPass.writes) >> j & 1) != 0; }
  // Bit q: sum q. Constants, since device code cannot reach a rule's tables.
  static constexpr unsigned summed(Over over) {
    unsigned mask = 0;
    for (int q = 0; q < kM; ++q) {
      if (detail::adds_up<R>(P, Matrix, q, over)) mask |= 1u << q;
    }
    return mask;
  }
  static constexpr unsigned kOfTensor = summed(Over::tensor), kOfRows = summed(Over::row),
                            kOfColumns = summed(Over::column);
  static constexpr int streams() {
    int count = static_cast<int>(kPass.grad) + static_cast<int>(kPass.param);
    for (int j = 0; j < kN; ++j) count += static_cast<int>(reads(j));
    return count;
  }
  // Vectors of a row, and rows, whose loads are under way before the first is waited for: passes
  // with few streams would leave memory idle.
  static constexpr bool kAny = A == Path::blocks || A == Path::quantised;
  static constexpr int kAtOnce = A != Path::f64 && streams() <= 2 ? kSlots : 1;
  // Sums, or states to write, leave no registers for that.
  static constexpr bool kLight =
      (kOfTensor | kOfRows | kOfColumns) == 0 && (kPass.writes & Present) == 0;
  static constexpr int kRowsAtOnce =
      A != Path::f64 && A != Path::quantised && streams() <= (kLight ? 2 : 1) ? 2 : 1;

  const Tensor& t;
  const NormTensor& n;
  const Job<R, T>& job;
  void* grad;
  Bits64 key;
  bool zero;
  Bits32 dither;  // of the tensor in this step
  Control& control;
  Seen<T> x;
  double column_sums[kOfColumns != 0 ? kM : 1][kSlots][kVector];
  double row_sums[kM], tile_sums[kM];

  __device__ __forceinline__ void* at(void* data, Storage storage, Index first) const {
    return advanced(data, kAny ? bytes_for(storage, first) : first * sizeof(T));
  }

  // V elements of every stream, and what belongs to their columns.
  template <int V>
  struct Loaded {
    alignas(16) T p[V], g[V], s[kN][V], column[R::values.column > 0 ? R::values.column : 1][V];
    alignas(16) Half rest[V];
    Codes<kVector> codes[A == Path::quantised ? kN : 1];
    float scale[A == Path::quantised ? kN : 1];
  };

  __device__ __forceinline__ void* low_at(Index first) const {
    return advanced(t.low, first * (t.param_storage == Storage::bf16_remainder ? 2 : 4));
  }

  // From the tensor's element `first` on, in columns from `column` on (of all matrices).
  template <int V>
  __device__ __forceinline__ void fetch_all(Index first, Index column, Loaded<V>& l) const {
    if constexpr (kAny) {
      if constexpr (kPass.grad) {
        fetch(at(grad, t.grad_storage, first), is_16_bit(t.grad_storage), 0, l.g);
      }
      if constexpr (kPass.param) {
        fetch_param(at(t.param, t.param_storage, first), low_at(first), t.param_storage, 0, l.p,
                    l.rest);
      }
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        if (!reads(j)) continue;
        const Storage storage = t.state_storage[j];
        if (A == Path::quantised && is_quantised(storage)) {
          if constexpr (A == Path::quantised && V == kVector) {
            fetch_codes(t.state[j], is_4_bit(storage), first, l.codes[j]);
            l.scale[j] = *scale_at(j, first);
          }
        } else {
          fetch(at(t.state[j], storage, first), is_16_bit(storage), 0, l.s[j]);
        }
      }
    } else {
      if constexpr (kPass.grad) load<kPass.writes == 0>(at(grad, t.grad_storage, first), 0, l.g);
      if constexpr (kPass.param) load(at(t.param, t.param_storage, first), 0, l.p);
#pragma unroll
      for (int j = 0; j < kN; ++j)
        if (reads(j)) load(at(t.state[j], t.state_storage[j], first), 0, l.s[j]);
    }
    if constexpr (Matrix) {
#pragma unroll
      for (int v = 0; v < R::values.column; ++v) column_values(v, column, l.column[v]);
    }
  }

  template <int V>
  __device__ __forceinline__ void update(Index first, int slot, int lane_at, Loaded<V>& l) {
    decode_all(l);
    compute(slot, lane_at, V, l);
    store_all(first, kAny ? low_at(first) : nullptr, l.p, l.s);
    if (zero) zero_gradient<V>(first);
  }

  template <int V>
  __device__ __forceinline__ void decode_all(Loaded<V>& l) const {
    if constexpr (kAny) {
      if constexpr (kPass.grad) decode(t.grad_storage, l.g);
      if constexpr (kPass.param) decode_param(t.param_storage, l.p, l.rest);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        if (!reads(j)) continue;
        if (A != Path::quantised || !is_quantised(t.state_storage[j])) {
          decode(t.state_storage[j], l.s[j]);
        }
      }
    }
  }

  // `count` of the V elements are there.
  template <int V>
  __device__ __forceinline__ void compute(int slot, int lane_at, int count, Loaded<V>& l) {
#pragma unroll
    for (int k = 0; k < V; ++k) {
      T e[kN], sum[kM] = {};
#pragma unroll
      for (int j = 0; j < kN; ++j) e[j] = reads(j) ? l.s[j][k] : T(0);
      const T before = kPass.param ? l.p[k] : T(0);
      const T gradient =
          kPass.grad ? detail::clamped(l.g[k], job.scale, job.limit) * job.factor : T(0);
      if constexpr (Matrix) {
#pragma unroll
        for (int v = 0; v < R::values.column; ++v) x.column[v] = l.column[v][k];
      }
      l.p[k] = R::template pass<P, Matrix>(before, gradient, e, job.coef, x, sum);
#pragma unroll
      for (int j = 0; j < kN; ++j)
        if (writes(j)) l.s[j][k] = e[j];
      if (A == Path::quantised && k >= count) continue;
#pragma unroll
      for (int q = 0; q < kM; ++q) {
        if (kOfRows >> q & 1) row_sums[q] += static_cast<double>(sum[q]);
        if (kOfTensor >> q & 1) tile_sums[q] += static_cast<double>(sum[q]);
        if (kOfColumns >> q & 1)
          column_sums[kOfColumns != 0 ? q : 0][slot][lane_at + k] += static_cast<double>(sum[q]);
      }
    }
  }

  // Vectors begin at a multiple of their length, where the tensor's rows do.
  template <int V>
  __device__ __forceinline__ void column_values(int v, Index c, T (&out)[V]) const {
    if constexpr (A == Path::f64) {
#pragma unroll
      for (int k = 0; k < V; ++k) out[k] = n.column_values[v][c + k];
    } else if constexpr (V == kVector) {
      *reinterpret_cast<float4*>(out) = *reinterpret_cast<const float4*>(n.narrow[v] + c);
    } else {
      out[0] = n.narrow[v][c];
    }
  }

  template <int V>
  __device__ __forceinline__ void store_all(Index first, void* low, const T (&p)[V],
                                            const T (&s)[kN][V]) const {
    constexpr Bits64 kStream = static_cast<Bits64>(P) * (detail::kMaxStates + 1);
    const auto random = [&](int stream) {
      return Random{combine(key, kStream + static_cast<Bits64>(stream)), first};
    };
    if constexpr (kWrites) {
      void* to = at(t.param, t.param_storage, first);
      if constexpr (kAny) {
        store_param(to, low, t.param_storage, 0, random(0), p);
      } else {
        store(to, 0, p);
      }
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!writes(j) || (A == Path::quantised && is_quantised(t.state_storage[j]))) continue;
      void* to = at(t.state[j], t.state_storage[j], first);
      if constexpr (kAny) {
        store_state(to, t.state_storage[j], 0, random(1 + j), s[j]);
      } else {
        store(to, 0, s[j]);
      }
    }
  }

  template <int V>
  __device__ __forceinline__ void zero_gradient(Index first) const {
    void* to = at(grad, t.grad_storage, first);
    alignas(16) const T zeros[V] = {};
    if (!kAny || t.grad_storage == Storage::f32) return store(to, 0, zeros);
    alignas(16) const Half halves[V] = {};
    store(to, 0, halves);
  }

  __device__ __forceinline__ void begin_row(Index row) {
#pragma unroll
    for (int q = 0; q < kM; ++q) row_sums[q] = 0;
    if constexpr (Matrix) {
#pragma unroll
      for (int v = 0; v < R::values.row; ++v) x.row[v] = static_cast<T>(n.row_values[v][row]);
    }
  }
  __device__ __forceinline__ Index column_at(Index row, Index from) const {
    return Matrix ? row / n.rows * n.columns + from : 0;
  }

  // Rows as wide as a tile, so and so many rows from one another.
  template <class Finish>
  __device__ __forceinline__ void update_whole_rows(Index row, Index apart, Index from,
                                                    Finish finish) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const Index column = column_at(row, from);
    const auto first_of = [&](int i, int slot) {
      return (row + i * apart) * n.columns + from + (slot * 32 + lane) * kVector;
    };
    Loaded<kVector> loaded[kRowsAtOnce][kSlots];
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) {
        fetch_all(first_of(i, slot), column + (slot * 32 + lane) * kVector, loaded[i][slot]);
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      begin_row(row + i * apart);
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) update(first_of(i, slot), slot, 0, loaded[i][slot]);
      finish(row + i * apart);
    }
  }

  // The same with quantised states: the lane's vectors are held until their blocks' scales are
  // known.
  __device__ __forceinline__ void update_code_row(Index row, Index from, int length, bool aligned) {
    const Index first = row * n.columns + from, column = column_at(row, from);
    begin_row(row);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const auto at_slot = [lane](int slot) { return (slot * 32 + lane) * kVector; };
    Loaded<kVector> l[kSlots];
    int count[kSlots];
    // The same for all lanes: chosen lane by lane, nvcc 13 stored whole vectors past the end.
    const bool whole = aligned && length == kTileColumns;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const int c = at_slot(slot), rest = length - c;
      count[slot] = rest < 0 ? 0 : rest < kVector ? rest : kVector;
      if (whole) {
        fetch_all(first + c, column + c, l[slot]);
        decode_all(l[slot]);
      } else {
        fetch_few(first + c, column + c, count[slot], l[slot]);
      }
    }
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const Index at = first + at_slot(slot);
      decode_states(l[slot]);
      compute(slot, 0, count[slot], l[slot]);
      if (whole) {
        store_all(at, low_at(at), l[slot].p, l[slot].s);
        if (zero) zero_gradient<kVector>(at);
        continue;
      }
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
#pragma unroll
        for (int j = 0; j < kN; ++j)
          if (k >= count[slot]) l[slot].s[j][k] = 0;
        if (k >= count[slot]) continue;
        T p[1] = {l[slot].p[k]}, s[kN][1];
#pragma unroll
        for (int j = 0; j < kN; ++j) s[j][0] = l[slot].s[j][k];
        store_all(at + k, low_at(at + k), p, s);
        if (zero) zero_gradient<1>(at + k);
      }
    }
    store_states(first, count, l);
  }

  // Row `row` of all rows, columns [from, from + length) of it.
  __device__ __forceinline__ void update_row(Index row, Index from, int length, bool aligned) {
    const Index first = row * n.columns + from, column = column_at(row, from);
    begin_row(row);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const auto first_of = [lane](int slot) { return (slot * 32 + lane) * kVector; };
    const auto is_whole = [&](int c) { return aligned && c + kVector <= length; };
    const int whole = aligned ? length / (32 * kVector) : 0;  // slots, for all lanes
#pragma unroll
    for (int slot = 0; slot < kSlots; slot += kAtOnce) {
      if (slot + kAtOnce <= whole) {
        Loaded<kVector> loaded[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          fetch_all(first + first_of(slot + i), column + first_of(slot + i), loaded[i]);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          update(first + first_of(slot + i), slot + i, 0, loaded[i]);
        }
        continue;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int c = first_of(slot + i);
        if (is_whole(c)) update_at<kVector>(first + c, column + c, slot + i, 0);
      }
    }
    if (length % (32 * kVector) == 0 && aligned) return;
    // What is left, element by element. Column sums lie in registers and have no index at run time.
    [[maybe_unused]] constexpr int kSlotsUnrolled = kOfColumns != 0 ? kSlots : 1,
                                   kUnrolled = kOfColumns != 0 ? kVector : 1;
#pragma unroll kSlotsUnrolled
    for (int slot = 0; slot < kSlots; ++slot) {
      const int c = first_of(slot);
      if (is_whole(c)) continue;
#pragma unroll kUnrolled
      for (int k = 0; k < kVector; ++k) {
        if (c + k < length) update_at<1>(first + c + k, column + c + k, slot, k);
      }
    }
  }

 private:
  __device__ __forceinline__ float* scale_at(int j, Index first) const {
    return t.scale[j] + (first >> scaled_bits(t.state_storage[j]));
  }
  // One by one and decoded, but for codes; past `count` zeros.
  __device__ __forceinline__ void fetch_few(Index first, Index column, int count,
                                            Loaded<kVector>& l) const {
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      Loaded<1> one;
      if (k < count) {
        fetch_all(first + k, column + k, one);
        decode_all(one);
      }
      l.g[k] = kPass.grad && k < count ? one.g[0] : T(0);
      l.p[k] = kPass.param && k < count ? one.p[0] : T(0);
#pragma unroll
      for (int j = 0; j < kN; ++j) l.s[j][k] = reads(j) && k < count ? one.s[j][0] : T(0);
#pragma unroll
      for (int v = 0; v < R::values.column; ++v)
        l.column[v][k] = k < count ? one.column[v][0] : T(0);
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      const Storage storage = t.state_storage[j];
      if (!reads(j) || !is_quantised(storage)) continue;
      fetch_few_codes(t.state[j], is_4_bit(storage), first, count, l.codes[j]);
      l.scale[j] = count > 0 ? *scale_at(j, first) : 0;
    }
  }
  __device__ __forceinline__ void decode_states(Loaded<kVector>& l) const {
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!reads(j) || !is_quantised(t.state_storage[j])) continue;
      decode_codes(t.state_storage[j], l.codes[j], l.scale[j], l.s[j]);
    }
  }
  // The largest of each slot, or of both where they share a scale.
  __device__ __forceinline__ void find_largest(int j, const Loaded<kVector> (&l)[kSlots],
                                               Bits32 (&most)[kSlots]) const {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) most[slot] = warp_largest(largest_of(l[slot].s[j]));
    if (is_4_bit(t.state_storage[j])) return;
    most[0] = most[1] = most[0] > most[1] ? most[0] : most[1];
  }
  __device__ __forceinline__ void drop_not_finite(Loaded<kVector> (&l)[kSlots]) const {
    Bits64 count = 0;
#pragma unroll
    for (int i = 0; i < kSlots * kVector; ++i) {
      bool dropped = false;
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        if (!writes(j) || !is_quantised(t.state_storage[j])) continue;
        T& value = l[i / kVector].s[j][i % kVector];
        if (is_finite(value)) continue;
        value = 0;
        dropped = true;
      }
      count += dropped ? 1 : 0;
    }
    if (count > 0) atomicAdd(&control.not_finite, count);
  }
  // Of a row's stretch that begins at `first`.
  __device__ __forceinline__ void store_states(Index first, const int (&count)[kSlots],
                                               Loaded<kVector> (&l)[kSlots]) const {
    static_assert(kSlots == 2 && kTileColumns == kBlock);
    constexpr Bits32 kStream = static_cast<Bits32>(P) * (detail::kMaxStates + 1);
    const auto lane = static_cast<Index>(threadIdx.x % 32);
    bool finite = true;
    Bits32 most[kN][kSlots];
    const auto look = [&] {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        if (!writes(j) || !is_quantised(t.state_storage[j])) continue;
        find_largest(j, l, most[j]);
        finite = finite && most[j][0] < kNotFinite && most[j][1] < kNotFinite;
      }
    };
    look();
    if (!finite) {
      drop_not_finite(l);
      look();
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      const Storage storage = t.state_storage[j];
      if (!writes(j) || !is_quantised(storage)) continue;
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) {
        const Index at = first + (slot * 32 + lane) * kVector;
        const float scale = scale_of(most[j][slot]);
        const Bits32 start = dither_of_stream(dither, kStream + 1 + static_cast<Bits32>(j));
        Codes<kVector> codes;
        encode_codes(storage, l[slot].s[j], scale, dither_at(start, static_cast<Bits32>(at)),
                     codes);
        store_codes(t.state[j], is_4_bit(storage), at, count[slot], codes);
        if (count[slot] > 0 && (at & (scaled_block(storage) - 1)) == 0) *scale_at(j, at) = scale;
      }
    }
  }

  template <int V>
  __device__ __forceinline__ void update_at(Index first, Index column, int slot, int lane_at) {
    Loaded<V> loaded;
    fetch_all(first, column, loaded);
    update(first, slot, lane_at, loaded);
  }
};

}  // namespace
}  // namespace gallop::cuda
