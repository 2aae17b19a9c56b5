// SPDX-License-Identifier: MIT
// Computes nothing, and leaves open how large buffers are.
#pragma once

#include "gpt/ops.h"

namespace gallop::gpt {

class IdleOps : public Ops {
 public:
  void* allocate(size_t) override { return nullptr; }
  void release(void*) noexcept override {}
  size_t free_memory() override { return 0; }
  void upload(void*, const void*, size_t) override {}
  void download(void*, const void*, size_t) override {}
  void zero(Tensor) override {}
  void run(int, const std::function<void()>&) override {}
  void mark(int) override {}
  double between(int, int) override { return 0; }
  void aside(const std::function<void()>&) override {}
  void* stream() override { return nullptr; }
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
  void rope(Tensor, const AttentionShape&, bool) override {}
  void attention(Attention, const AttentionShape&, Tensor, Tensor, Tensor, Tensor) override {}
  void attention_backward(Attention, const AttentionShape&, Tensor, Tensor, Tensor, Tensor, Tensor,
                          Tensor) override {}
  void activation(Tensor, Tensor) override {}
  void activation_backward(Tensor, Tensor, Tensor) override {}
  void cross_entropy(const Tokens&, int64_t, Tensor, int64_t, Tensor, bool,
                     const LossScale*) override {}
  void find_hits(const Tokens&, int64_t, Tensor, int64_t, Tensor) override {}
  void mean(const Tokens&, Tensor, Tensor) override {}
  void advance(LossScale*, const int64_t*) override {}
};

}  // namespace gallop::gpt
