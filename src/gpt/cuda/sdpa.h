// SPDX-License-Identifier: MIT
// Scaled dot-product attention on a GPU in one pass over memory, by cuDNN, which is loaded when it
// is first needed.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace gallop::cuda {

// softmax(scale q k^T) v. All lie as [batch, time, heads, width], a head's elements side by side,
// so that q, k and v may be slices of one [batch * time, 3 * heads * width] matrix.
struct SdpaShape {
  int64_t batch, heads, time, width;
  int64_t row_stride_qkv;  // elements from one time step to the next, of dq, dk and dv too
  int64_t row_stride_o;    // of d_o too
  bool bf16;               // else fp16
  bool causal;             // a time step sees itself and those before it
  float scale;
  bool deterministic = true;  // the same bits from every backward pass, in more workspace
  auto operator<=>(const SdpaShape&) const = default;
};

// For one thread at a time. What a shape needs is planned when it is first asked about, which may
// take seconds and cannot be captured; after that nothing is allocated on the device and nothing
// waits for it.
class Sdpa {
 public:
  explicit Sdpa(int device);  // throws ErrorCode::unsupported without a cuDNN that can do it
  ~Sdpa();
  Sdpa(const Sdpa&) = delete;
  Sdpa& operator=(const Sdpa&) = delete;

  bool supports(const SdpaShape& s);           // forward and backward
  size_t workspace_bytes(const SdpaShape& s);  // enough for either
  std::string describe(const SdpaShape& s);    // engines, or why there are none

  // Memory is aligned to 16 bytes, the workspace to 256. `stats` is fp32 [batch, heads, time], the
  // logarithms of the softmax's sums, which backward needs.
  void forward(const SdpaShape& s, const void* q, const void* k, const void* v, void* o,
               float* stats, void* workspace, void* stream);
  void backward(const SdpaShape& s, const void* q, const void* k, const void* v, const void* o,
                const void* d_o, const float* stats, void* dq, void* dk, void* dv, void* workspace,
                void* stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gallop::cuda
