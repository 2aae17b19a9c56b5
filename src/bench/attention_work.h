// SPDX-License-Identifier: MIT
// Causal attention with all its tensors, through Ops alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpt/ops.h"
#include "gpt/trainer.h"

namespace gallop::bench {

struct AttentionPlace {
  Device device;
  int threads = 0;
  bool deterministic = true;  // on a GPU: the same bits from every backward pass
};

struct AttentionCase {
  gpt::AttentionShape shape{};
  gpt::Compute compute = gpt::Compute::fp32;
  gpt::Attention how = gpt::Attention::fused;
};

std::string describe(const AttentionCase& c);

// Throws where the device has no such precision.
std::unique_ptr<gpt::Ops> attention_ops(const AttentionPlace& place, const AttentionCase& c);

// What it takes, in bytes.
struct AttentionMemory {
  double model = 0;      // queries, keys, values and output
  double saved = 0;      // by forward for backward
  double scratch = 0;    // of forward or backward, whichever has more
  double gradients = 0;  // of all that is in `model`
  double total() const { return model + saved + scratch + gradients; }
};

class AttentionWork {
 public:
  // Throws if there is no such attention, or too little memory for it; takes none yet.
  AttentionWork(gpt::Ops& ops, const AttentionCase& c);
  ~AttentionWork();
  AttentionWork(const AttentionWork&) = delete;
  AttentionWork& operator=(const AttentionWork&) = delete;

  const AttentionMemory& memory() const { return memory_; }

  // Takes it: queries, keys, values and the output's gradient are uniform, of variance 1.
  void fill(uint64_t seed);
  void fill_as(const AttentionWork& other);  // with the same numbers

  // Forward so many times, then backward; recorded under this number from the second time on.
  void run(int program, int64_t times);
  // Seconds of each, of the last run; they wait.
  double forward_s(int64_t times);
  double backward_s(int64_t times);

  std::vector<double> output() const { return read(out_); }
  // [batch x time, 3 x heads x width]: of queries, keys and values.
  std::vector<double> gradients() const { return read(dqkv_); }
  int64_t columns() const { return case_.shape.heads * case_.shape.width; }

 private:
  void allocate();
  void set(gpt::Tensor to, uint64_t seed);
  std::vector<double> read(gpt::Tensor from) const;

  gpt::Ops& ops_;
  AttentionCase case_;
  AttentionMemory memory_;
  gpt::Tensor qkv_, out_, saved_, dqkv_, dout_;
  gpt::Tensor forward_scratch_, backward_scratch_;  // in the same memory
  void* scratch_ = nullptr;
};

}  // namespace gallop::bench
