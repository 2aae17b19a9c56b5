// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "cuda/matmul.h"
#include "gpt/cuda/sdpa.h"
#include "gpt/ops.h"

namespace gallop::gpt::cuda {

gallop::cuda::Element element_of(DType type, bool tf32);

// Causal attention: fused by cuDNN in 16 bits and by flash.cu in fp32, or with all scores in
// memory.
class AttentionOnGpu {
 public:
  AttentionOnGpu(const GpuOptions& options, gallop::cuda::Matmul& matmul)
      : options_(options), matmul_(matmul) {}

  // Throw where there is no fused kernel.
  Extent saved(Attention how, const AttentionShape& s, DType type);
  Extent scratch(Attention how, const AttentionShape& s, DType type, bool back);
  void forward(Attention how, const AttentionShape& s, Tensor qkv, Tensor out, Tensor saved,
               Tensor scratch, void* stream);
  void backward(Attention how, const AttentionShape& s, Tensor qkv, Tensor out, Tensor saved,
                Tensor dout, Tensor dqkv, Tensor scratch, void* stream);

 private:
  gallop::cuda::SdpaShape sdpa_shape(const AttentionShape& s, DType type) const;
  void require_fused(const AttentionShape& s, DType type);
  void naive(const AttentionShape& s, Tensor qkv, Tensor out, Tensor p, void* stream);
  void naive_backward(const AttentionShape& s, Tensor qkv, Tensor p, Tensor dout, Tensor dqkv,
                      Tensor dp, void* stream);

  GpuOptions options_;
  gallop::cuda::Matmul& matmul_;
  std::unique_ptr<gallop::cuda::Sdpa> sdpa_;  // when it is first needed
};

}  // namespace gallop::gpt::cuda
