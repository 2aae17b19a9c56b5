// SPDX-License-Identifier: MIT
#include "gpt/trainer.h"

#include <fmt/format.h>

#include <numeric>

#include "data/loader.h"
#include "gallop/error.h"
#include "gpt/trainer_parts.h"

namespace gallop::gpt {
namespace {

constexpr std::string_view kComputes[] = {"fp32", "tf32", "bf16", "fp16", "fp64"};

Optimizer make_optimizer(const TrainerOptions& o, const Model& model) {
  Optimizer optimizer(o.optimizer, optimizer_options(o));
  for (ParamGroup& group : param_groups(o, model)) {
    optimizer.add_group(std::move(group.params), group.options);
  }
  return optimizer;
}

// Moments of a step: before each batch's forward and backward, and around the optimizer.
int before_forward(int micro) { return 2 * micro + 2; }
int before_backward(int micro) { return 2 * micro + 3; }
constexpr int kBeforeOptimizer = 0, kEnd = 1;

}  // namespace

std::string_view to_string(Compute c) { return kComputes[static_cast<int>(c)]; }

Compute parse_compute(std::string_view text) {
  for (int i = 0; i < 5; ++i) {
    if (kComputes[i] == text) return static_cast<Compute>(i);
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("precision '{}', expected fp32, tf32, bf16, fp16 or fp64", text));
}

Rounding rounding_in(Compute compute, Rounding rounding) {
  return compute == Compute::fp16 && rounding == Rounding::remainder ? Rounding::master : rounding;
}

size_t MemoryUse::total() const { return std::accumulate(std::begin(of), std::end(of), size_t{0}); }

Trainer::Trainer(const TrainerOptions& options) : options_(settled(options)) {
  ops_ = make_ops(options_);
  model_ = std::make_unique<Model>(options_.config, model_options(options_), *ops_);
  model_->initialize(options_.seed);
  if (scales(options_)) set_loss_scale(static_cast<float>(*options_.loss_scale), 0);
  if (options_.optimizer == "none") return;
  optimizer_.emplace(make_optimizer(options_, *model_));
  if (!options_.overlap) return;
  by_layer_.resize(static_cast<size_t>(options_.config.layers) + 2);
  for (size_t i = 0; i < optimizer_->size(); ++i) {
    const auto& name = optimizer_->param(i).name;
    size_t at = 0;
    while (model_->spec(at).name != name) ++at;
    const ParamSpec& spec = model_->spec(at);
    // What comes after the blocks is known first; the embedding and what is tied to it last.
    const bool after =
        spec.part == Part::norm || spec.part == Part::norm_bias || spec.part == Part::head;
    by_layer_[static_cast<size_t>(after ? options_.config.layers + 1 : spec.layer + 1)].push_back(
        i);
  }
}

Trainer::~Trainer() = default;

// Updates a part's parameters as soon as its gradients are known.
struct Trainer::Updates final : Observer {
  explicit Updates(Trainer& t) : trainer(t) {}
  void begin(Phase phase, int64_t layer) override {
    trainer.ranges_.begin(phase, layer);
    if (phase == Phase::backward) trainer.before_gradients(layer);
  }
  void end(Phase phase, int64_t layer) override {
    trainer.ranges_.end(phase, layer);
    if (phase == Phase::backward) trainer.update(layer);
  }
  Trainer& trainer;
};

bool Trainer::overlaps() const { return options_.overlap && optimizer_; }

void Trainer::update(int64_t layer) {
  const std::vector<size_t>& params = by_layer_[static_cast<size_t>(layer + 1)];
  if (params.empty()) return;
  const Ranges::Scope scope(ranges_, "optimizer", layer);
  ops_->begin_update();
  optimizer_->step_params(params);
  const int64_t places = model_->options().grad_places;
  if (places > 0 && layer >= 0) ops_->mark_updates(static_cast<int>(layer % places));
}

// Their place is free when the block that had it before is updated.
void Trainer::before_gradients(int64_t layer) {
  const int64_t places = model_->options().grad_places;
  if (places == 0 || layer < 0 || layer + places >= options_.config.layers) return;
  ops_->wait_updates(static_cast<int>(layer % places));
}

void Trainer::record(int micro) {
  const bool last = micro == options_.accumulation - 1;
  const Ranges::Scope scope(ranges_, "batch");
  const auto backward = [&](Observer* observer) {
    const Ranges::Scope phase(ranges_, "backward");
    model_->backward(model_->tokens(), micro > 0, observer);
  };
  ops_->run(micro, [&] {
    ops_->mark(before_forward(micro));
    {
      const Ranges::Scope phase(ranges_, "forward");
      model_->forward(model_->tokens(), micro > 0, &ranges_);
    }
    ops_->mark(before_backward(micro));
    StepArgs args;
    args.accumulation = static_cast<double>(options_.accumulation);
    if (last && overlaps()) {
      Updates updates(*this);
      args.stream = ops_->begin_update();
      optimizer_->begin_step(args);
      backward(&updates);
      ops_->mark(kBeforeOptimizer);
      const Ranges::Scope phase(ranges_, "optimizer");
      optimizer_->end_step();
      ops_->end_updates();
    } else {
      backward(&ranges_);
      if (!last) return;
      ops_->mark(kBeforeOptimizer);
      const Ranges::Scope phase(ranges_, "optimizer");
      if (optimizer_) optimize(args);
    }
    ops_->mark(kEnd);
  });
}

void Trainer::optimize(StepArgs args) {
  args.stream = ops_->stream();
  LossScale* const scale = model_->loss_scale();
  if (scale != nullptr) {
    if (options_.device.kind == Device::Kind::cuda) {
      args.device_grad_scale = &scale->scale;
    } else {
      args.grad_scale = static_cast<double>(scale->scale);
    }
  }
  optimizer_->step(args);
  if (scale != nullptr) ops_->advance(scale, optimizer_->skipped_at());
}

void Trainer::step(std::span<const data::Batch> batches) {
  if (static_cast<int64_t>(batches.size()) != options_.accumulation) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{} batches for a step, expected {}",
                                                         batches.size(), options_.accumulation));
  }
  losses_.clear();
  const Ranges::Scope scope(ranges_, "step");
  for (size_t micro = 0; micro < batches.size(); ++micro) {
    {
      const Ranges::Scope part(ranges_, "upload");
      model_->upload(batches[micro]);
    }
    record(static_cast<int>(micro));
    if (micro + 1 < batches.size()) losses_.push_back(model_->loss());
  }
}

double Trainer::loss() {
  double sum = model_->loss();
  for (double l : losses_) sum += l;
  return sum / static_cast<double>(options_.accumulation);
}

StepTimes Trainer::times() {
  StepTimes t;
  const int micros = static_cast<int>(options_.accumulation);
  for (int i = 0; i < micros; ++i) {
    t.forward += ops_->between(before_forward(i), before_backward(i));
    t.backward += ops_->between(before_backward(i),
                                i + 1 < micros ? before_forward(i + 1) : kBeforeOptimizer);
  }
  t.optimizer = ops_->between(kBeforeOptimizer, kEnd);
  return t;
}

double Trainer::evaluate(const data::Batch& batch) {
  const Ranges::Scope scope(ranges_, "evaluation");
  model_->evaluate(model_->upload(batch));
  return model_->loss();
}

void Trainer::parameters_changed() {
  if (optimizer_) optimizer_->refresh_masters();
}

std::vector<std::byte> Trainer::download(const Tensor& tensor) const {
  std::vector<std::byte> bytes(tensor.bytes());
  ops_->download(bytes.data(), tensor.data, bytes.size());
  return bytes;
}

void Trainer::upload(const Tensor& tensor, std::span<const std::byte> bytes) {
  if (bytes.size() != tensor.bytes()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} bytes for a tensor, expected {}", bytes.size(), tensor.bytes()));
  }
  ops_->upload(tensor.data, bytes.data(), bytes.size());
}

std::optional<LossScale> Trainer::loss_scale() const {
  if (model_->loss_scale() == nullptr) return std::nullopt;
  LossScale scale;
  ops_->download(&scale, model_->loss_scale(), sizeof scale);
  return scale;
}

void Trainer::set_loss_scale(float scale, int32_t good_steps) {
  const LossScale now{scale, good_steps, optimizer_ ? optimizer_->skipped() : 0};
  ops_->upload(model_->loss_scale(), &now, sizeof now);
}

MemoryUse Trainer::memory() const {
  return memory_use(*model_, optimizer_ ? static_cast<size_t>(optimizer_->state_bytes()) : 0);
}

}  // namespace gallop::gpt
