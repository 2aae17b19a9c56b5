// SPDX-License-Identifier: MIT
#pragma once

#include "gpt/arena.h"
#include "gpt/cuda/sizes.h"
#include "gpt/idle_ops.h"

namespace gallop::gpt {

// Sizes of a GPU's buffers without the GPU: what src/gpt/cuda would say.
class PlanOps final : public IdleOps {
  using Shape = AttentionShape;
  using How = Attention;

 public:
  Extent norm_scratch(int64_t rows, int64_t width) override {
    return {DType::f32, 2 * cuda::norm_blocks(rows, width), width};
  }
  Extent attention_saved(How how, const Shape& s, DType type) override {
    const int64_t rows = s.batch * s.heads * s.time;
    return how == How::naive ? Extent{type, rows, s.time} : Extent{DType::f32, rows, 1};
  }
  Extent attention_scratch(How how, const Shape& s, DType type, bool back) override {
    const int64_t rows = s.batch * s.heads * s.time;
    if (how == How::naive) return back ? Extent{type, rows, s.time} : Extent{};
    if (type == DType::f32) return back ? Extent{DType::f32, rows, 1} : Extent{};
    // cuDNN decides. On an H200, with the same bits every time, this makes plans what they are in
    // docs/results.md: sums of rows, and scores' gradients in 16 bits.
    const auto sums = whole_places(4 * static_cast<size_t>(rows)) / 4;
    return {DType::f32, 1, static_cast<int64_t>(sums) + (rows * s.time + 1) / 2};
  }
  int64_t logits_columns(int64_t vocabulary) override { return cuda::logits_columns(vocabulary); }
  bool has_aside() override { return true; }
};

}  // namespace gallop::gpt
