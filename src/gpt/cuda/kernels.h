// SPDX-License-Identifier: MIT
// What a GPU does between products of matrices. Each call launches and returns.
#pragma once

#include <cstdint>

#include "gpt/ops.h"
#include "gpt/tensor.h"

namespace gallop::gpt::cuda {

// norm.cu; stats: mean and inverse deviation, fp32
void norm(Tensor x, Tensor weight, Tensor bias, Tensor y, Tensor stats, bool rms, float epsilon,
          void* stream);
void norm_backward(const Ops::NormBackward& n, bool rms, void* stream);
void norm_weights(const Ops::NormBackward& n,
                  void* stream);  // from what the former left in scratch
Extent norm_scratch(int64_t rows, int64_t width);

// elements.cu
void add(Tensor x, Tensor y, Tensor sum, void* stream);
void activation(Tensor f, Tensor h, bool swiglu, void* stream);
void activation_backward(Tensor f, Tensor dh, Tensor h, bool swiglu, void* stream);
// turns: [time, width] cos, sin of each pair, fp32
void rope(Tensor qkv, const float* turns, int64_t time, int64_t heads, int64_t width, bool back,
          void* stream);
// sums (+)= of each column
void column_sums(Tensor x, Tensor sums, bool add, void* stream);

// embedding.cu
void embed(const Tokens& on, Tensor wte, Tensor wpe, Tensor x, void* stream);
void embed_backward(const Tokens& on, Tensor dx, Tensor dwte, bool add_wte, Tensor dwpe, bool add,
                    void* stream);

// loss.cu
void cross_entropy(const Tokens& on, int64_t first, Tensor logits, int64_t vocabulary,
                   Tensor losses, bool gradient, const LossScale* scale, void* stream);
void find_hits(const Tokens& on, int64_t first, Tensor logits, int64_t vocabulary, Tensor hits,
               void* stream);
void mean(const Tokens& on, Tensor values, Tensor mean, void* stream);
void advance(LossScale* scale, const int64_t* skipped, void* stream);

// softmax.cu, for attention that keeps all its scores: [batch x heads x time, time]
void causal_softmax(Tensor scores, int64_t time, float scale, void* stream);
void causal_softmax_backward(Tensor p, Tensor dp, int64_t time, float scale, void* stream);

// flash.cu: fused attention in fp32; stats: the logarithm of each row's sum, [batch, heads, time]
bool flash_fits(const AttentionShape& s);
void flash(const AttentionShape& s, Tensor qkv, Tensor out, float* stats, void* stream);
// delta: [batch, heads, time]
void flash_backward(const AttentionShape& s, Tensor qkv, Tensor out, const float* stats,
                    Tensor dout, Tensor dqkv, float* delta, void* stream);

}  // namespace gallop::gpt::cuda
