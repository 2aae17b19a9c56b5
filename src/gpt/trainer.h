// SPDX-License-Identifier: MIT
// A model, its optimizer, and steps of both on one device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gallop/optimizer.h"
#include "gpt/model.h"
#include "gpt/ranges.h"

namespace gallop::gpt {

// What products are computed in. fp32 and fp64 are the parameters' type too; with bf16 and fp16 on
// a GPU, matrices are kept in 16 bits with what they lack beside them. On a CPU everything is kept
// in fp32, and bf16 is what factors are rounded to.
enum class Compute { fp32, tf32, bf16, fp16, fp64 };
std::string_view to_string(Compute);
Compute parse_compute(std::string_view);

Rounding rounding_in(Compute compute, Rounding rounding);

struct TrainerOptions {
  Config config;
  Device device;
  int threads = 0;
  int64_t batch = 4, time = 0;  // time 0: the model's context
  // Batches in a step: the mean of their losses, each over its own targets that count.
  int64_t accumulation = 1;

  Compute compute = Compute::fp32;
  // Of 16-bit matrices: remainder keeps the 16 bits of fp32 that bf16 lacks, master all of fp32;
  // fp16 has no remainder, and a master instead.
  Rounding rounding = Rounding::remainder;
  std::optional<DType> gradients;  // of matrices; default: bf16 and fp16 as they are, else fp32
  Attention attention = Attention::fused;
  bool compiled = true;       // fused, and on a GPU recorded once; else kernel by kernel
  bool deterministic = true;  // on a GPU: the same bits every time, in more workspace
  bool checkpoints = false;
  size_t logits_bytes = ModelOptions().logits_bytes;

  std::string optimizer = "adamw";  // or none
  Hyper hyper;
  // No weight decay for norms, biases and embeddings of positions, where the rule has it.
  bool decay_vectors = false;
  StatePolicy state;
  Schedule schedule;
  double clip_norm = 0;
  // What the loss is multiplied by at first; 0: by nothing. It grows and falls with what gradients
  // bear, and a step with some that are not finite is skipped. Default: with fp16 alone.
  std::optional<double> loss_scale;
  // Parameters are updated while backward goes on, on a GPU beside it, and blocks take turns in the
  // memory of gradients. Not where all gradients must be known first: with clipping or a loss
  // scale.
  bool overlap = false;
  uint64_t seed = 1;
};

Precision precision_of(const TrainerOptions& options);
// Whether matrices are kept in 16 bits.
bool in_16_bits(const TrainerOptions& options);

struct StepTimes {  // seconds
  double forward = 0, backward = 0, optimizer = 0;
  double total() const { return forward + backward + optimizer; }
};

// Bytes at the highest point of a step.
struct MemoryUse {
  size_t of[kMemoryClasses] = {};
  size_t& operator[](MemoryClass c) { return of[static_cast<int>(c)]; }
  size_t operator[](MemoryClass c) const { return of[static_cast<int>(c)]; }
  size_t total() const;
};

class Trainer {
 public:
  explicit Trainer(const TrainerOptions& options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  const TrainerOptions& options() const { return options_; }
  Model& model() { return *model_; }
  Optimizer* optimizer() { return optimizer_ ? &*optimizer_ : nullptr; }
  Ranges& ranges() { return ranges_; }  // steps tell it what they are at

  // One update with the gradient of as many batches as are accumulated.
  void step(std::span<const data::Batch> batches);
  double loss();                              // the mean over the last step's batches; waits
  StepTimes times();                          // of the last step; waits
  double evaluate(const data::Batch& batch);  // the loss
  // The share of targets that the last evaluate() found to be the likeliest; waits.
  double accuracy() const { return model_->accuracy(); }
  // What libraries chose, and the same again before the first step (see Ops).
  std::string algorithms() { return ops_->algorithms(); }
  void set_algorithms(const std::string& line) { ops_->set_algorithms(line); }

  // After values of parameters were set from outside.
  void parameters_changed();
  // Memory on the device as it is, of parameters and what optimizers keep beside them; both wait.
  std::vector<std::byte> download(const Tensor& tensor) const;
  void upload(const Tensor& tensor, std::span<const std::byte> bytes);
  MemoryUse memory() const;
  // Where gradients are scaled; waits.
  std::optional<LossScale> loss_scale() const;
  void set_loss_scale(float scale, int32_t good_steps);

 private:
  void record(int micro);
  struct Updates;
  bool overlaps() const;
  void optimize(StepArgs args);
  void update(int64_t layer);
  void before_gradients(int64_t layer);

  TrainerOptions options_;
  Ranges ranges_{options_.config.layers};
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  std::optional<Optimizer> optimizer_;
  std::vector<double> losses_;
  std::vector<std::vector<size_t>> by_layer_;  // parameters of layer + 1; those after the last
};

}  // namespace gallop::gpt
