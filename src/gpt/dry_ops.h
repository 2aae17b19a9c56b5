// SPDX-License-Identifier: MIT
// Computes nothing: for the run that finds out what memory a step needs.
#pragma once

#include "gpt/ops.h"

namespace gallop::gpt {

class DryOps final : public Ops {
 public:
  explicit DryOps(Ops& real) : real_(real) {}

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
  void aside(const std::function<void()>& work) override { work(); }
  bool has_aside() override { return real_.has_aside(); }
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
  Extent norm_scratch(int64_t rows, int64_t width) override {
    return real_.norm_scratch(rows, width);
  }
  void linear(Tensor, Tensor, Tensor, Tensor, Tensor) override {}
  void linear_backward_x(Tensor, Tensor, Tensor) override {}
  void linear_backward_weight(Tensor, Tensor, Tensor, Tensor, bool) override {}
  void add(Tensor, Tensor, Tensor) override {}
  void rope(Tensor, const AttentionShape&, bool) override {}
  void attention(Attention, const AttentionShape&, Tensor, Tensor, Tensor, Tensor) override {}
  void attention_backward(Attention, const AttentionShape&, Tensor, Tensor, Tensor, Tensor, Tensor,
                          Tensor) override {}
  Extent attention_saved(Attention how, const AttentionShape& shape, DType type) override {
    return real_.attention_saved(how, shape, type);
  }
  Extent attention_scratch(Attention how, const AttentionShape& shape, DType type,
                           bool back) override {
    return real_.attention_scratch(how, shape, type, back);
  }
  void activation(Tensor, Tensor) override {}
  void activation_backward(Tensor, Tensor, Tensor) override {}
  int64_t logits_columns(int64_t vocabulary) override { return real_.logits_columns(vocabulary); }
  void cross_entropy(const Tokens&, int64_t, Tensor, int64_t, Tensor, bool,
                     const LossScale*) override {}
  void mean_loss(const Tokens&, Tensor, Tensor) override {}
  void advance(LossScale*, const int64_t*) override {}

 private:
  Ops& real_;
};

}  // namespace gallop::gpt
