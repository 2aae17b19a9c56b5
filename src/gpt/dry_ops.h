// SPDX-License-Identifier: MIT
// For the run that finds out what memory a step needs.
#pragma once

#include "gpt/idle_ops.h"

namespace gallop::gpt {

class DryOps final : public IdleOps {
 public:
  explicit DryOps(Ops& real) : real_(real) {}

  void aside(const std::function<void()>& work) override { work(); }
  bool has_aside() override { return real_.has_aside(); }
  Extent norm_scratch(int64_t rows, int64_t width) override {
    return real_.norm_scratch(rows, width);
  }
  Extent attention_saved(Attention how, const AttentionShape& shape, DType type) override {
    return real_.attention_saved(how, shape, type);
  }
  Extent attention_scratch(Attention how, const AttentionShape& shape, DType type,
                           bool back) override {
    return real_.attention_scratch(how, shape, type, back);
  }
  int64_t logits_columns(int64_t vocabulary) override { return real_.logits_columns(vocabulary); }

 private:
  Ops& real_;
};

}  // namespace gallop::gpt
