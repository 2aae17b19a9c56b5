// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "gpt/arena.h"
#include "gpt/cuda/sizes.h"
#include "gpt/ops.h"

namespace gallop::gpt {

// Sizes of a GPU's buffers without the GPU: what src/gpt/cuda would say.
class PlanOps final : public Ops {
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

  void* allocate(size_t) override { return nullptr; }
  void release(void*) noexcept override {}
  size_t free_memory() override { return 0; }
  void upload(void*, const void*, size_t) override {}
  void download(void*, const void*, size_t) override {}
  void zero(Tensor) override {}
  void run(int, const std::function<void()>&) override {}
  void mark(int) override {}
  double between(int, int) override { return 0; }
  void* stream() override { return nullptr; }
  void aside(const std::function<void()>&) override {}
  void mark_aside(int) override {}
  void wait_aside(int) override {}
  void* begin_update() override { return nullptr; }
  void end_updates() override {}
  void mark_updates(int) override {}
  void wait_updates(int) override {}
  std::string algorithms() override { return {}; }
  void set_algorithms(const std::string&) override {}
  void embed(const Tokens&, Tensor, Tensor, Tensor) override {}
  void embed_backward(const Tokens&, Tensor, Tensor, bool, Tensor, bool) override {}
  void norm(Tensor, Tensor, Tensor, Tensor, Tensor) override {}
  void norm_backward(const NormBackward&) override {}
  void linear(Tensor, Tensor, Tensor, Tensor, Tensor) override {}
  void linear_backward_x(Tensor, Tensor, Tensor) override {}
  void linear_backward_weight(Tensor, Tensor, Tensor, Tensor, bool) override {}
  void add(Tensor, Tensor, Tensor) override {}
  void rope(Tensor, const Shape&, bool) override {}
  void attention(How, const Shape&, Tensor, Tensor, Tensor, Tensor) override {}
  void attention_backward(How, const Shape&, Tensor, Tensor, Tensor, Tensor, Tensor,
                          Tensor) override {}
  void activation(Tensor, Tensor) override {}
  void activation_backward(Tensor, Tensor, Tensor) override {}
  void cross_entropy(const Tokens&, int64_t, Tensor, int64_t, Tensor, bool,
                     const LossScale*) override {}
  void mean_loss(const Tokens&, Tensor, Tensor) override {}
  void advance(LossScale*, const int64_t*) override {}
};

}  // namespace gallop::gpt
