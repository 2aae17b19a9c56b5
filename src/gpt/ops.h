// SPDX-License-Identifier: MIT
// What a training step is put together from, by whoever computes: the CPU in fp32 or fp64, or a
// GPU. Nothing here waits; results are there when what was asked for before them is done.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpt/config.h"
#include "gpt/loss_scale.h"
#include "gpt/tensor.h"

namespace gallop::gpt {

// A batch where it is computed with. Rows are positions: batch x time of them.
struct Tokens {
  int64_t batch = 0, time = 0;
  const int32_t* inputs = nullptr;
  const int32_t* targets = nullptr;   // below 0: not counted
  const int32_t* order = nullptr;     // rows by token
  const int32_t* starts = nullptr;    // of each distinct token in `order`, and where the last ends
  const int32_t* distinct = nullptr;  // the tokens themselves
  const int32_t* counts = nullptr;    // how many are distinct; how many targets count
  int64_t rows() const { return batch * time; }
};

enum class Attention { naive, fused };

struct AttentionShape {
  int64_t batch, heads, time, width;
};

// What an operation wants besides its arguments.
struct Extent {
  DType type = DType::f32;
  int64_t rows = 0, columns = 0;
};

struct Ops {
  virtual ~Ops() = default;

  // ---- memory ----
  virtual void* allocate(size_t bytes) = 0;  // zeroed; throws when there is not enough
  virtual void release(void* memory) noexcept = 0;
  virtual size_t free_memory() = 0;  // bytes
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const void* from, size_t bytes) = 0;  // waits
  virtual void zero(Tensor t) = 0;

  // ---- time ----
  // Does the work; where it can be recorded (a CUDA graph), from the second time on by what was
  // recorded under this number.
  virtual void run(int program, const std::function<void()>& work) = 0;
  virtual void mark(int moment) = 0;                // remembers when it is reached
  virtual double between(int first, int last) = 0;  // seconds; waits
  virtual void* stream() = 0;                       // cudaStream_t, or null
  // Work that others need not wait for, after all that was asked for before it; it may go on beside
  // what is asked for after it. What it reads and writes must stay until wait_aside.
  virtual void aside(const std::function<void()>& work) = 0;
  virtual bool has_aside() = 0;           // else it is done at once
  virtual void mark_aside(int slot) = 0;  // all that was put aside so far
  virtual void wait_aside(int slot) = 0;  // what follows comes after it

  // Where updates go while others go on: behind all that was put aside so far.
  virtual void* begin_update() = 0;          // a stream
  virtual void end_updates() = 0;            // what follows comes after all of them
  virtual void mark_updates(int place) = 0;  // those so far
  virtual void wait_updates(int place) = 0;  // gradients that follow are written after them

  // Which of their ways libraries chose, in one line; and the same again, before the first step.
  virtual std::string algorithms() = 0;
  virtual void set_algorithms(const std::string& line) = 0;

  // ---- layers; gradients of parameters are written, or added when `add` is set ----
  // x = wte[token] (+ wpe[position])
  virtual void embed(const Tokens& on, Tensor wte, Tensor wpe, Tensor x) = 0;
  virtual void embed_backward(const Tokens& on, Tensor dx, Tensor dwte, bool add_wte, Tensor dwpe,
                              bool add) = 0;
  // stats: a mean and the inverse of a deviation for each row
  virtual void norm(Tensor x, Tensor weight, Tensor bias, Tensor y, Tensor stats) = 0;
  // dx is `plus` (may be dx itself, or absent) and what dy makes of it, narrow the same in its
  // type. y is computed again where it is wanted; it may be dy. dweight and dbias come aside.
  struct NormBackward {
    Tensor x, stats, weight, bias, dy, plus, dx, narrow, y, dweight, dbias, scratch;
    bool add = false;
  };
  virtual void norm_backward(const NormBackward& n) = 0;
  virtual Extent norm_scratch(int64_t rows, int64_t width) = 0;
  // y = x weight^T + bias + plus
  virtual void linear(Tensor x, Tensor weight, Tensor bias, Tensor plus, Tensor y) = 0;
  virtual void linear_backward_x(Tensor dy, Tensor weight, Tensor dx) = 0;
  virtual void linear_backward_weight(Tensor dy, Tensor x, Tensor dweight, Tensor dbias,
                                      bool add) = 0;
  virtual void add(Tensor x, Tensor y, Tensor sum) = 0;
  virtual void rope(Tensor qkv, const AttentionShape& shape, bool back) = 0;
  virtual void attention(Attention how, const AttentionShape& shape, Tensor qkv, Tensor out,
                         Tensor saved, Tensor scratch) = 0;
  virtual void attention_backward(Attention how, const AttentionShape& shape, Tensor qkv,
                                  Tensor out, Tensor saved, Tensor dout, Tensor dqkv,
                                  Tensor scratch) = 0;
  virtual Extent attention_saved(Attention how, const AttentionShape& shape, DType type) = 0;
  virtual Extent attention_scratch(Attention how, const AttentionShape& shape, DType type,
                                   bool back) = 0;
  virtual void activation(Tensor f, Tensor h) = 0;
  // f becomes its gradient; h, which may be dh, is computed again.
  virtual void activation_backward(Tensor f, Tensor dh, Tensor h) = 0;
  // Columns of logits: more than the vocabulary where products of odd sizes are slow. The rows of
  // the head's weight that the rest are multiplied by are zeros.
  virtual int64_t logits_columns(int64_t vocabulary) = 0;
  // losses[row] for rows of `logits` that begin at `first`; logits become the gradient of the mean
  // over all targets that count, times the scale (may be null), if `gradient` is set. Columns
  // behind the vocabulary do not count and become zeros.
  virtual void cross_entropy(const Tokens& on, int64_t first, Tensor logits, int64_t vocabulary,
                             Tensor losses, bool gradient, const LossScale* scale) = 0;
  // hits[row]: 1 where the target's logit is the largest, the first of equal ones, else 0.
  virtual void find_hits(const Tokens& on, int64_t first, Tensor logits, int64_t vocabulary,
                         Tensor hits) = 0;
  // Of what rows have whose targets count, where others have 0; 0 where none does.
  virtual void mean(const Tokens& on, Tensor values, Tensor mean) = 0;
  // skipped: the optimizer's count, where Ops computes
  virtual void advance(LossScale* scale, const int64_t* skipped) = 0;
};

// Of rope, [context, width of a head]: cos and sin of each pair's angle.
template <class T>
std::vector<T> rope_turns(const Config& config) {
  const int64_t width = config.head_width();
  std::vector<T> turns(static_cast<size_t>(config.context * width));
  for (int64_t t = 0; t < config.context; ++t) {
    for (int64_t i = 0; i < width; i += 2) {
      const double angle = static_cast<double>(t) *
                           std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(width));
      turns[static_cast<size_t>(t * width + i)] = static_cast<T>(std::cos(angle));
      turns[static_cast<size_t>(t * width + i + 1)] = static_cast<T>(std::sin(angle));
    }
  }
  return turns;
}

// On the CPU, with T for everything; bf16: factors of products with weights are rounded to it as
// they are multiplied, where the CPU can and T is float.
template <class T>
std::unique_ptr<Ops> cpu_ops(const Config& config, int threads, bool bf16 = false);
bool cpu_has_bf16();

struct GpuOptions {
  int device = 0;
  bool tf32 = false;          // products of fp32 numbers in 19 bits of them
  bool graphs = true;         // what is run twice is recorded
  bool deterministic = true;  // the same bits every time, in more workspace
};
std::unique_ptr<Ops> gpu_ops(const Config& config, const GpuOptions& options);

}  // namespace gallop::gpt
