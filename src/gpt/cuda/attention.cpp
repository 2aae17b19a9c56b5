// SPDX-License-Identifier: MIT
#include "gpt/cuda/attention.h"

#include <fmt/format.h>

#include <cmath>

#include "gallop/error.h"
#include "gpt/cuda/kernels.h"

namespace gallop::gpt::cuda {

using gallop::cuda::Element;
using gallop::cuda::Product;
using gallop::cuda::Sdpa;
using gallop::cuda::SdpaShape;

namespace {

float scale_of(const AttentionShape& s) { return 1.0f / std::sqrt(static_cast<float>(s.width)); }

std::byte* at(Tensor t, int64_t element) {
  return static_cast<std::byte*>(t.data) + static_cast<size_t>(element) * size_of(t.type);
}

// One head of a sequence in a matrix: columns are positions.
struct Heads {
  void* data;
  int64_t ld, stride;  // elements to the next position and head
};

}  // namespace

Element element_of(DType type, bool tf32) {
  switch (type) {
    case DType::bf16:
      return Element::bf16;
    case DType::f16:
      return Element::f16;
    case DType::f64:
      return Element::f64;
    case DType::f32:
      break;
  }
  return tf32 ? Element::tf32 : Element::f32;
}

SdpaShape AttentionOnGpu::sdpa_shape(const AttentionShape& s, DType type) const {
  const int64_t all = s.heads * s.width;
  return {s.batch,
          s.heads,
          s.time,
          s.width,
          3 * all,
          all,
          type == DType::bf16,
          true,
          scale_of(s),
          options_.deterministic};
}

void AttentionOnGpu::require_fused(const AttentionShape& s, DType type) {
  if (type == DType::f32) {
    if (flash_fits(s)) return;
    throw Error(
        ErrorCode::unsupported,
        fmt::format("no fused attention in fp32 for heads {} wide, expected at most 128", s.width));
  }
  if (!sdpa_) sdpa_ = std::make_unique<Sdpa>(options_.device);
  const SdpaShape shape = sdpa_shape(s, type);
  if (sdpa_->supports(shape)) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("no fused attention in {} for {} heads of {} over {} positions: {}",
                          to_string(type), s.heads, s.width, s.time, sdpa_->describe(shape)));
}

Extent AttentionOnGpu::saved(Attention how, const AttentionShape& s, DType type) {
  const int64_t rows = s.batch * s.heads * s.time;
  if (how == Attention::naive) return {type, rows, s.time};
  require_fused(s, type);
  return {DType::f32, rows, 1};
}

Extent AttentionOnGpu::scratch(Attention how, const AttentionShape& s, DType type, bool back) {
  const int64_t rows = s.batch * s.heads * s.time;
  if (how == Attention::naive) return back ? Extent{type, rows, s.time} : Extent{};
  require_fused(s, type);
  if (type == DType::f32) return back ? Extent{DType::f32, rows, 1} : Extent{};
  const size_t bytes = sdpa_->workspace_bytes(sdpa_shape(s, type));
  return {DType::f32, bytes == 0 ? 0 : 1, static_cast<int64_t>((bytes + 3) / 4)};
}

void AttentionOnGpu::forward(Attention how, const AttentionShape& s, Tensor qkv, Tensor out,
                             Tensor saved, Tensor scratch, void* stream) {
  if (how == Attention::naive) return naive(s, qkv, out, saved, stream);
  if (qkv.type == DType::f32) return flash(s, qkv, out, saved.as<float>(), stream);
  const int64_t all = s.heads * s.width;
  sdpa_->forward(sdpa_shape(s, qkv.type), qkv.data, at(qkv, all), at(qkv, 2 * all), out.data,
                 saved.as<float>(), scratch.data, stream);
}

void AttentionOnGpu::backward(Attention how, const AttentionShape& s, Tensor qkv, Tensor out,
                              Tensor saved, Tensor dout, Tensor dqkv, Tensor scratch,
                              void* stream) {
  if (how == Attention::naive) return naive_backward(s, qkv, saved, dout, dqkv, scratch, stream);
  if (qkv.type == DType::f32) {
    return flash_backward(s, qkv, out, saved.as<float>(), dout, dqkv, scratch.as<float>(), stream);
  }
  const int64_t all = s.heads * s.width;
  sdpa_->backward(sdpa_shape(s, qkv.type), qkv.data, at(qkv, all), at(qkv, 2 * all), out.data,
                  dout.data, saved.as<float>(), dqkv.data, at(dqkv, all), at(dqkv, 2 * all),
                  scratch.data, stream);
}

// All heads of a sequence at a time. Matrices are transposes of ours, as cuBLASLt has columns:
// queries, keys and values are [width, time], scores [keys, queries].
void AttentionOnGpu::naive(const AttentionShape& s, Tensor qkv, Tensor out, Tensor p,
                           void* stream) {
  const int64_t all = s.heads * s.width, square = s.time * s.time;
  const bool aligned = static_cast<size_t>(all) * size_of(qkv.type) % 256 == 0 &&
                       static_cast<size_t>(square) * size_of(qkv.type) % 256 == 0;
  Product scores{};
  scores.element = element_of(qkv.type, options_.tf32);
  scores.count = static_cast<int>(s.heads);
  scores.aligned = aligned;
  Product values = scores;
  scores.m = scores.n = s.time, scores.k = s.width;
  scores.transpose_a = true;
  scores.ld_a = scores.ld_b = 3 * all, scores.ld_c = s.time;
  scores.stride_a = scores.stride_b = s.width, scores.stride_c = square;
  values.m = s.width, values.n = values.k = s.time;
  values.ld_a = 3 * all, values.ld_b = s.time, values.ld_c = all;
  values.stride_a = values.stride_c = s.width, values.stride_b = square;
  for (int64_t b = 0; b < s.batch; ++b) {
    const int64_t first = b * s.time * 3 * all;
    void* some = at(p, b * s.heads * square);
    matmul_.run(scores, 1, at(qkv, first + all), at(qkv, first), 0, some, some, stream);
  }
  causal_softmax(p, s.time, scale_of(s), stream);
  for (int64_t b = 0; b < s.batch; ++b) {
    void* to = at(out, b * s.time * all);
    matmul_.run(values, 1, at(qkv, b * s.time * 3 * all + 2 * all), at(p, b * s.heads * square), 0,
                to, to, stream);
  }
}

void AttentionOnGpu::naive_backward(const AttentionShape& s, Tensor qkv, Tensor p, Tensor dout,
                                    Tensor dqkv, Tensor dp, void* stream) {
  const int64_t all = s.heads * s.width, square = s.time * s.time;
  const bool aligned = static_cast<size_t>(all) * size_of(qkv.type) % 256 == 0 &&
                       static_cast<size_t>(square) * size_of(qkv.type) % 256 == 0;
  // [width, time] = a [width, time] op([time, time]); or [time, time] = a^T b, both [width, time]
  const auto go = [&](Heads a, Heads b, Heads c, bool to_square, bool transpose) {
    Product x{};
    x.element = element_of(qkv.type, options_.tf32);
    x.count = static_cast<int>(s.heads);
    x.aligned = aligned;
    x.m = to_square ? s.time : s.width, x.n = s.time, x.k = to_square ? s.width : s.time;
    x.transpose_a = to_square, x.transpose_b = transpose;
    x.ld_a = a.ld, x.ld_b = b.ld, x.ld_c = c.ld;
    x.stride_a = a.stride, x.stride_b = b.stride, x.stride_c = c.stride;
    matmul_.run(x, 1, a.data, b.data, 0, c.data, c.data, stream);
  };
  const auto in = [&](Tensor t, int64_t b, int64_t part) {
    const int64_t ld = t.columns;
    return Heads{at(t, b * s.time * ld + part * all), ld, s.width};
  };
  const auto squares = [&](Tensor t, int64_t b) {
    return Heads{at(t, b * s.heads * square), s.time, square};
  };
  for (int64_t b = 0; b < s.batch; ++b) {
    go(in(dout, b, 0), squares(p, b), in(dqkv, b, 2), false, true);
    go(in(qkv, b, 2), in(dout, b, 0), squares(dp, b), true, false);
  }
  causal_softmax_backward(p, dp, s.time, scale_of(s), stream);
  for (int64_t b = 0; b < s.batch; ++b) {
    go(in(qkv, b, 1), squares(dp, b), in(dqkv, b, 0), false, false);
    go(in(qkv, b, 0), squares(dp, b), in(dqkv, b, 1), false, true);
  }
}

}  // namespace gallop::gpt::cuda
