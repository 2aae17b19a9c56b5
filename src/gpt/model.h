// SPDX-License-Identifier: MIT
// Forward and backward of a decoder, written once over Ops.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "gpt/arena.h"
#include "gpt/layout.h"
#include "gpt/ops.h"

namespace gallop::data {
struct Batch;
}

namespace gallop::gpt {

struct Precision {
  DType matrices = DType::f32;   // parameters with two dimensions, and what is multiplied by them
  DType vectors = DType::f32;    // norms, biases, statistics
  DType residual = DType::f32;   // the stream that blocks add to, and its gradient
  DType gradients = DType::f32;  // of matrices; of vectors as these
};

struct ModelOptions {
  int64_t batch = 1, time = 1;
  Precision precision;
  Attention attention = Attention::fused;
  bool only_planned = false;  // sizes without memory: nothing can be computed
  bool fused = true;          // additions within products, where Ops can
  bool checkpoints = false;   // keep what enters a block and compute the rest of it again
  size_t logits_bytes = size_t{256} << 20;  // at a time; above it the head goes in pieces
  bool scaled = false;                      // gradients, by a LossScale
  // So many blocks have gradients at a time: each takes the place of one that was before it in
  // backward. 0: all of them.
  int64_t grad_places = 0;
};

enum class Phase { forward, backward };

// Is told what is being computed. Layers are 0 and on; -1 is what comes before them, `layers` what
// comes after.
struct Observer {
  virtual ~Observer() = default;
  virtual void begin(Phase, int64_t /*layer*/) {}
  virtual void end(Phase, int64_t /*layer*/) {}
};

class Model {
 public:
  Model(const Config& config, const ModelOptions& options, Ops& ops);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const Config& config() const { return config_; }
  const ModelOptions& options() const { return options_; }

  size_t size() const { return specs_.size(); }
  const ParamSpec& spec(size_t i) const { return specs_[i]; }
  Tensor param(size_t i) const { return params_[i]; }
  Tensor grad(size_t i) const { return grads_[i]; }

  void initialize(uint64_t seed);
  void set_values(size_t i, std::span<const double> values);
  std::vector<double> values(size_t i) const { return read(params_[i]); }
  std::vector<double> grad_values(size_t i) const;  // without the scale, as it is now

  // Of the loss; where Ops computes, null unless gradients are scaled.
  LossScale* loss_scale() const { return loss_scale_; }

  // The batch where Ops computes; stays until the next call.
  const Tokens& upload(const data::Batch& batch);
  const Tokens& tokens() const { return tokens_; }  // the last one

  // `add`: gradients are added to those that are there. Forward has it too: a head in pieces makes
  // its gradient at once.
  void forward(const Tokens& on, bool add = false, Observer* observer = nullptr);
  void backward(const Tokens& on, bool add = false, Observer* observer = nullptr);
  void evaluate(const Tokens& on, Observer* observer = nullptr);  // forward alone
  double loss() const;  // the mean of the last pass over targets that count; waits
  // The share of these whose logit was the largest, in the last evaluate(); waits.
  double accuracy() const;

  // What comes after one row of the batch, by a pass without backward; waits.
  std::vector<double> logits(const Tokens& on, int64_t row);

  enum Kind { training, evaluation, generation };
  const Arena& arena() const { return arena_; }
  size_t param_bytes() const { return param_bytes_; }
  size_t grad_bytes() const { return grad_bytes_; }
  size_t grad_bytes_saved() const { return grad_bytes_saved_; }  // by taking turns

 private:
  struct Saved {  // of a block's forward for its backward
    Tensor x, stats1, qkv, attended, attention, x2, stats2, f;
  };

  Tensor weight(Part part, int64_t layer = -1) const { return find(params_, part, layer); }
  Tensor gradient(Part part, int64_t layer = -1) const { return find(grads_, part, layer); }
  Tensor find(const std::vector<Tensor>& in, Part part, int64_t layer) const;
  // With the rows behind the vocabulary's.
  Tensor whole_head(const std::vector<Tensor>& in) const;
  size_t places_for(const ParamSpec& spec, Tensor t) const;  // bytes of memory
  Part head() const { return config_.tied ? Part::embedding : Part::head; }
  int64_t rows() const { return options_.batch * options_.time; }
  AttentionShape attention_shape() const;

  Tensor take(std::string_view name, int64_t layer, DType type, int64_t columns);
  Tensor take(std::string_view name, MemoryClass cls, int64_t layer, Extent extent);

  Tensor embed(const Tokens& on);
  // Without `whole`, up to what backward needs.
  Tensor block_forward(int64_t layer, Saved& s, bool keep, bool whole = true);
  void block_backward(int64_t layer, Saved& s, bool add);
  void attention_backward(int64_t layer, Saved& s, bool add);
  void head_forward(const Tokens& on, bool train, bool add);
  void head_backward(bool add);
  void linear_onto(Tensor x, Part weight, Part bias, int64_t layer, Tensor plus, Tensor y);
  void norm_backward(int64_t layer, Part weight, Part bias, Tensor& x, Tensor& stats, Tensor dy,
                     bool add);
  void give_later(Tensor& t);  // when what was put aside in this block is done
  void end_block(int64_t layer);
  void wait_for_aside();
  void weight_gradient(Tensor dy, Tensor x, Part weight, Part bias, int64_t layer, bool add);
  Tensor pass(const Tokens& on);  // all blocks, keeping nothing
  std::vector<double> read(Tensor t) const;
  template <class T>
  void put(Tensor t, int64_t first, std::span<const T> values);
  bool takes_turns(const ParamSpec& spec) const {
    return options_.grad_places > 0 && spec.layer >= options_.grad_places;
  }
  void allocate();
  void plan();
  void require_memory() const;

  Config config_;
  ModelOptions options_;
  Ops& real_;
  Ops* ops_;  // real_, but for dry runs
  std::vector<ParamSpec> specs_;
  std::vector<Tensor> params_, grads_;
  std::vector<std::array<int, kParts>> where_;  // of layer + 1: each part's index, or -1
  Arena arena_;
  std::vector<void*> memory_;
  size_t param_bytes_ = 0, grad_bytes_ = 0, grad_bytes_saved_ = 0;
  int32_t* batch_memory_ = nullptr;
  Tokens tokens_;
  Tensor losses_, loss_, hits_, accuracy_;
  LossScale* loss_scale_ = nullptr;

  // Between forward and backward.
  std::vector<Saved> saved_;
  Tensor x_, final_stats_, dlogits_, dfinal_, dx_, narrow_;
  std::vector<Tensor> later_[2];  // in use aside: by this block, by the one before
};

}  // namespace gallop::gpt
