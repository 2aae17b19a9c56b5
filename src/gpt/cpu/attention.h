// SPDX-License-Identifier: MIT
#pragma once

#include "gpt/cpu/kernels.h"
#include "gpt/ops.h"

namespace gallop::gpt::cpu {

// Causal attention over [batch x time, 3 x heads x width] matrices of queries, keys and values.
// naive keeps all probabilities, fused the logarithm of each row's sum and makes them again, some
// rows at a time.
template <class T>
struct AttentionOn {
  const Kernels<T>& kernels;
  int threads;

  Extent saved(Attention how, const AttentionShape& s) const;
  Extent scratch(Attention how, const AttentionShape& s, bool back) const;
  void forward(Attention how, const AttentionShape& s, Tensor qkv, Tensor out, Tensor saved,
               Tensor scratch) const;
  void backward(Attention how, const AttentionShape& s, Tensor qkv, Tensor out, Tensor saved,
                Tensor dout, Tensor dqkv, Tensor scratch) const;
};

}  // namespace gallop::gpt::cpu
