// SPDX-License-Identifier: MIT
// Forward and backward, block by block.
#include <algorithm>

#include "gpt/model.h"

namespace gallop::gpt {
namespace {

// Tells an observer when a part begins and ends.
class Told {
 public:
  Told(Observer* observer, Phase phase, int64_t layer)
      : observer_(observer), phase_(phase), layer_(layer) {
    if (observer_ != nullptr) observer_->begin(phase_, layer_);
  }
  ~Told() {
    if (observer_ != nullptr) observer_->end(phase_, layer_);
  }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

 private:
  Observer* observer_;
  Phase phase_;
  int64_t layer_;
};

}  // namespace

AttentionShape Model::attention_shape() const {
  return {options_.batch, config_.heads, options_.time, config_.head_width()};
}

Tensor Model::take(std::string_view name, int64_t layer, DType type, int64_t columns) {
  return arena_.take(name, MemoryClass::activations, layer, type, rows(), columns);
}

Tensor Model::take(std::string_view name, MemoryClass cls, int64_t layer, Extent e) {
  if (e.rows == 0) return {};
  return arena_.take(name, cls, layer, e.type, e.rows, e.columns);
}

void Model::linear_onto(Tensor x, Part w, Part b, int64_t layer, Tensor plus, Tensor y) {
  if (options_.fused) return ops_->linear(x, weight(w, layer), weight(b, layer), plus, y);
  Tensor product = take("sum", layer, options_.precision.residual, y.columns);
  ops_->linear(x, weight(w, layer), weight(b, layer), {}, product);
  ops_->add(plus, product, y);
  arena_.give(product);
}

void Model::weight_gradient(Tensor dy, Tensor x, Part w, Part b, int64_t layer, bool add) {
  ops_->aside(
      [&] { ops_->linear_backward_weight(dy, x, gradient(w, layer), gradient(b, layer), add); });
}

void Model::give_later(Tensor& t) {
  if (!ops_->has_aside()) return arena_.give(t);
  if (t) later_[0].push_back(t);
  t = {};
}

// What the block before put aside has had this one's time to be done.
void Model::end_block(int64_t layer) {
  const int slot = static_cast<int>((layer + 2) % 2);
  ops_->mark_aside(slot);
  if (!later_[1].empty()) ops_->wait_aside(slot ^ 1);
  for (Tensor& t : later_[1]) arena_.give(t);
  later_[1] = std::move(later_[0]);
  later_[0].clear();
}

void Model::wait_for_aside() {
  ops_->mark_aside(0);
  ops_->wait_aside(0);
  for (auto& some : later_) {
    for (Tensor& t : some) arena_.give(t);
    some.clear();
  }
}

Tensor Model::embed(const Tokens& on) {
  Tensor x = take("embedded", -1, options_.precision.residual, config_.width);
  ops_->embed(on, weight(Part::embedding), weight(Part::positions), x);
  return x;
}

Tensor Model::block_forward(int64_t l, Saved& s, bool keep, bool whole) {
  const Precision& p = options_.precision;
  const int64_t width = config_.width;
  s.stats1 = take("norm 1 statistics", l, p.vectors, 2);
  Tensor y = take("norm 1", l, p.matrices, width);
  ops_->norm(s.x, weight(Part::norm1, l), weight(Part::norm1_bias, l), y, s.stats1);
  s.qkv = take("qkv", l, p.matrices, 3 * width);
  ops_->linear(y, weight(Part::qkv, l), weight(Part::qkv_bias, l), {}, s.qkv);
  arena_.give(y);
  const AttentionShape shape = attention_shape();
  if (config_.positions == Positions::rope) ops_->rope(s.qkv, shape, false);
  s.attended = take("attention", l, p.matrices, width);
  s.attention = take("attention, saved", MemoryClass::activations, l,
                     ops_->attention_saved(options_.attention, shape, p.matrices));
  Tensor scratch = take("attention, scratch", MemoryClass::workspace, l,
                        ops_->attention_scratch(options_.attention, shape, p.matrices, false));
  ops_->attention(options_.attention, shape, s.qkv, s.attended, s.attention, scratch);
  arena_.give(scratch);
  if (!keep) {
    arena_.give(s.qkv);
    arena_.give(s.attention);
  }
  s.x2 = take("after attention", l, p.residual, width);
  linear_onto(s.attended, Part::out, Part::out_bias, l, s.x, s.x2);
  if (!keep) {
    arena_.give(s.attended);
    arena_.give(s.x);
    arena_.give(s.stats1);
  }
  s.stats2 = take("norm 2 statistics", l, p.vectors, 2);
  y = take("norm 2", l, p.matrices, width);
  ops_->norm(s.x2, weight(Part::norm2, l), weight(Part::norm2_bias, l), y, s.stats2);
  s.f = take("expanded", l, p.matrices, config_.expanded());
  ops_->linear(y, weight(Part::fc, l), weight(Part::fc_bias, l), {}, s.f);
  arena_.give(y);
  if (!whole) return {};
  Tensor h = take("activation", l, p.matrices, config_.hidden);
  ops_->activation(s.f, h);
  if (!keep) arena_.give(s.f);
  Tensor x3 = take("block", l, p.residual, width);
  linear_onto(h, Part::proj, Part::proj_bias, l, s.x2, x3);
  arena_.give(h);
  if (!keep) {
    arena_.give(s.x2);
    arena_.give(s.stats2);
  }
  return x3;
}

// The stream's gradient goes on in a place of its own where products read it: those aside may still
// be at the last one.
void Model::norm_backward(int64_t layer, Part w, Part b, Tensor& x, Tensor& stats, Tensor dy,
                          bool add) {
  const Precision& p = options_.precision;
  const bool one = p.residual == p.matrices;  // what is multiplied is the stream's gradient itself
  Tensor scratch = take("norm, scratch", MemoryClass::workspace, layer,
                        ops_->norm_scratch(rows(), config_.width));
  Ops::NormBackward n;
  n.x = x, n.stats = stats, n.weight = weight(w, layer), n.bias = weight(b, layer);
  n.dy = dy, n.y = dy, n.plus = dx_;
  const Tensor before = narrow_;
  if (one || !dx_) dx_ = take("residual gradient", layer, p.residual, config_.width);
  narrow_ = one ? dx_ : take("residual gradient to multiply", layer, p.matrices, config_.width);
  n.dx = dx_;
  if (!one) n.narrow = narrow_;
  n.dweight = gradient(w, layer), n.dbias = gradient(b, layer), n.scratch = scratch;
  n.add = add;
  ops_->norm_backward(n);
  Tensor old = before;
  give_later(old);
  give_later(scratch);
  arena_.give(x);
  arena_.give(stats);
}

void Model::block_backward(int64_t l, Saved& s, bool add) {
  const Precision& p = options_.precision;
  if (options_.checkpoints) block_forward(l, s, true, false);
  Tensor h = take("activation gradient", l, p.matrices, config_.hidden);
  ops_->linear_backward_x(narrow_, weight(Part::proj, l), h);
  ops_->activation_backward(s.f, h, h);
  weight_gradient(narrow_, h, Part::proj, Part::proj_bias, l, add);
  give_later(h);
  Tensor y = take("norm 2 gradient", l, p.matrices, config_.width);
  ops_->linear_backward_x(s.f, weight(Part::fc, l), y);
  norm_backward(l, Part::norm2, Part::norm2_bias, s.x2, s.stats2, y, add);
  weight_gradient(s.f, y, Part::fc, Part::fc_bias, l, add);
  give_later(s.f);
  give_later(y);
  attention_backward(l, s, add);
  end_block(l);
}

void Model::attention_backward(int64_t l, Saved& s, bool add) {
  const Precision& p = options_.precision;
  const AttentionShape shape = attention_shape();
  Tensor dattended = take("attention gradient", l, p.matrices, config_.width);
  ops_->linear_backward_x(narrow_, weight(Part::out, l), dattended);
  weight_gradient(narrow_, s.attended, Part::out, Part::out_bias, l, add);
  Tensor dqkv = take("qkv gradient", l, p.matrices, 3 * config_.width);
  Tensor scratch = take("attention, scratch", MemoryClass::workspace, l,
                        ops_->attention_scratch(options_.attention, shape, p.matrices, true));
  ops_->attention_backward(options_.attention, shape, s.qkv, s.attended, s.attention, dattended,
                           dqkv, scratch);
  for (Tensor* t : {&scratch, &dattended, &s.qkv, &s.attention}) arena_.give(*t);
  give_later(s.attended);
  if (config_.positions == Positions::rope) ops_->rope(dqkv, shape, true);
  Tensor y = take("norm 1 gradient", l, p.matrices, config_.width);
  ops_->linear_backward_x(dqkv, weight(Part::qkv, l), y);
  norm_backward(l, Part::norm1, Part::norm1_bias, s.x, s.stats1, y, add);
  weight_gradient(dqkv, y, Part::qkv, Part::qkv_bias, l, add);
  give_later(dqkv);
  give_later(y);
}

// In one piece, logits become their own gradient and wait for backward. In several, each piece is
// taken back through the head at once, so that no more than one exists at a time.
void Model::head_forward(const Tokens& on, bool train, bool add) {
  const DType type = options_.precision.matrices;
  const int64_t columns = ops_->logits_columns(config_.vocabulary);
  final_stats_ = take("last norm statistics", -1, options_.precision.vectors, 2);
  Tensor y = take("last norm", -1, type, config_.width);
  ops_->norm(x_, weight(Part::norm), weight(Part::norm_bias), y, final_stats_);
  const size_t row_bytes = static_cast<size_t>(columns) * size_of(type);
  const int64_t at_once =
      std::clamp(static_cast<int64_t>(options_.logits_bytes / row_bytes), int64_t{1}, rows());
  const int64_t pieces = (rows() + at_once - 1) / at_once;
  const int64_t piece = (rows() + pieces - 1) / pieces;
  Tensor logits = arena_.take("logits", MemoryClass::logits, -1, type, piece, columns);
  if (train && pieces > 1) dfinal_ = take("last norm gradient", -1, type, config_.width);
  for (int64_t first = 0; first < rows(); first += piece) {
    const int64_t count = std::min(piece, rows() - first);
    const Tensor some = logits.rows_from(0, count), from = y.rows_from(first, count);
    ops_->linear(from, whole_head(params_), {}, {}, some);
    if (!train) {
      ops_->find_hits(on, first, some, config_.vocabulary, hits_.rows_from(first, count));
    }
    ops_->cross_entropy(on, first, some, config_.vocabulary, losses_.rows_from(first, count), train,
                        loss_scale_);
    if (!dfinal_) continue;
    ops_->linear_backward_x(some, whole_head(params_), dfinal_.rows_from(first, count));
    ops_->linear_backward_weight(some, from, whole_head(grads_), {}, add || first > 0);
  }
  ops_->mean(on, losses_, loss_);
  if (!train) ops_->mean(on, hits_, accuracy_);
  arena_.give(y);
  if (train && pieces == 1) {
    dlogits_ = logits;
  } else {
    arena_.give(logits);
  }
  if (!train) {
    arena_.give(final_stats_);
    arena_.give(x_);
  }
}

void Model::head_backward(bool add) {
  const bool in_pieces = static_cast<bool>(dfinal_);
  Tensor y = in_pieces ? dfinal_
                       : take("last norm gradient", -1, options_.precision.matrices, config_.width);
  if (!in_pieces) ops_->linear_backward_x(dlogits_, whole_head(params_), y);
  norm_backward(-1, Part::norm, Part::norm_bias, x_, final_stats_, y, add);
  if (!in_pieces) {
    ops_->aside([&] { ops_->linear_backward_weight(dlogits_, y, whole_head(grads_), {}, add); });
  }
  give_later(y);
  give_later(dlogits_);
  dfinal_ = {};
  end_block(config_.layers);
}

void Model::forward(const Tokens& on, bool add, Observer* observer) {
  if (!arena_.planning()) arena_.begin(training);
  Tensor x;
  {
    const Told told(observer, Phase::forward, -1);
    x = embed(on);
  }
  for (int64_t l = 0; l < config_.layers; ++l) {
    const Told told(observer, Phase::forward, l);
    Saved& s = saved_[static_cast<size_t>(l)];
    s.x = x;
    x = block_forward(l, s, true);
    if (!options_.checkpoints) continue;
    for (Tensor* t : {&s.stats1, &s.qkv, &s.attended, &s.attention, &s.x2, &s.stats2, &s.f}) {
      arena_.give(*t);
    }
  }
  const Told told(observer, Phase::forward, config_.layers);
  x_ = x;
  head_forward(on, true, add);
}

void Model::backward(const Tokens& on, bool add, Observer* observer) {
  {
    const Told told(observer, Phase::backward, config_.layers);
    head_backward(add);
  }
  for (int64_t l = config_.layers - 1; l >= 0; --l) {
    const Told told(observer, Phase::backward, l);
    block_backward(l, saved_[static_cast<size_t>(l)], add);
  }
  const Told told(observer, Phase::backward, -1);
  wait_for_aside();
  ops_->embed_backward(on, dx_, gradient(Part::embedding), add || config_.tied,
                       gradient(Part::positions), add);
  if (narrow_.data != dx_.data) arena_.give(narrow_);
  narrow_ = {};
  arena_.give(dx_);
}

Tensor Model::pass(const Tokens& on) {
  Saved s;
  s.x = embed(on);
  for (int64_t l = 0; l < config_.layers; ++l) s.x = block_forward(l, s, false);
  return s.x;
}

void Model::evaluate(const Tokens& on, Observer* observer) {
  if (!arena_.planning()) arena_.begin(evaluation);
  const Told told(observer, Phase::forward, config_.layers);
  x_ = pass(on);
  head_forward(on, false, false);
}

std::vector<double> Model::logits(const Tokens& on, int64_t row) {
  if (!arena_.planning()) arena_.begin(generation);
  const DType type = options_.precision.matrices;
  Tensor x = pass(on);
  Tensor stats = take("last norm statistics", -1, options_.precision.vectors, 2);
  Tensor y = take("last norm", -1, type, config_.width);
  ops_->norm(x, weight(Part::norm), weight(Part::norm_bias), y, stats);
  Tensor out = arena_.take("logits", MemoryClass::logits, -1, type, 1, config_.vocabulary);
  ops_->linear(y.rows_from(row, 1), weight(head()), {}, {}, out);
  return arena_.planning() ? std::vector<double>() : read(out);
}

}  // namespace gallop::gpt
