// SPDX-License-Identifier: MIT
#include "gpt/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "data/loader.h"
#include "gallop/error.h"
#include "gallop/rules.h"

namespace gallop::gpt {
namespace {

constexpr std::string_view kComputes[] = {"fp32", "tf32", "bf16", "fp16", "fp64"};

std::unique_ptr<Ops> make_ops(const TrainerOptions& o) {
  if (o.device.kind == Device::Kind::cuda) {
    if (o.compute == Compute::fp64) {
      throw Error(ErrorCode::unsupported,
                  "training in fp64 on a GPU, expected fp32, tf32, bf16 or fp16");
    }
    GpuOptions gpu;
    gpu.device = o.device.index;
    gpu.tf32 = o.compute == Compute::tf32;
    gpu.graphs = o.compiled;
    gpu.deterministic = o.deterministic;
    return gpu_ops(o.config, gpu);
  }
  if (o.compute == Compute::fp32) return cpu_ops<float>(o.config, o.threads);
  if (o.compute == Compute::fp64) return cpu_ops<double>(o.config, o.threads);
  if (o.compute == Compute::bf16 && cpu_has_bf16()) {
    return cpu_ops<float>(o.config, o.threads, true);
  }
  throw Error(ErrorCode::unsupported,
              o.compute == Compute::bf16
                  ? "training in bf16 on a CPU without AVX512-BF16, expected fp32 or fp64"
                  : fmt::format("training in {} on the CPU, expected fp32, bf16 or fp64",
                                to_string(o.compute)));
}

bool scales(const TrainerOptions& o) { return *o.loss_scale > 0; }

bool has_knob(const RuleInfo& rule, std::string_view name) {
  return std::any_of(rule.knobs.begin(), rule.knobs.end(),
                     [&](const auto& knob) { return knob.name == name; });
}

Optimizer make_optimizer(const TrainerOptions& o, Model& model) {
  Options options;
  options.device = o.device;
  options.threads = o.threads;
  options.clip_norm = o.clip_norm;
  options.skip_nonfinite = scales(o);
  options.seed = o.seed;
  if (o.compiled && o.device.kind == Device::Kind::cuda) options.mode = Mode::compiled;
  Optimizer optimizer(o.optimizer, options);
  // Two groups: what is decayed and what is not.
  std::vector<Param> groups[2];
  const bool apart = !o.decay_vectors && has_knob(optimizer.rule(), "weight_decay");
  for (size_t i = 0; i < model.size(); ++i) {
    const ParamSpec& spec = model.spec(i);
    const Tensor p = model.param(i), g = model.grad(i);
    const bool vector = !spec.matrix() || spec.part == Part::positions;
    groups[apart && vector].push_back(
        {spec.name, spec.shape, p.data, g.data, p.type, g.type, spec.role});
  }
  for (int i = 0; i < 2; ++i) {
    if (groups[i].empty()) continue;
    GroupOptions group;
    group.hyper = o.hyper;
    if (i == 1) {
      std::erase_if(group.hyper, [](const auto& h) { return h.first == "weight_decay"; });
      group.hyper.emplace_back("weight_decay", 0.0);
    }
    group.state = o.state;
    group.schedule = o.schedule;
    if (in_16_bits(o)) group.rounding = o.rounding;
    optimizer.add_group(std::move(groups[i]), group);
  }
  return optimizer;
}

// Moments of a step: before each batch's forward and backward, and around the optimizer.
int before_forward(int micro) { return 2 * micro + 2; }
int before_backward(int micro) { return 2 * micro + 3; }
constexpr int kBeforeOptimizer = 0, kEnd = 1;

}  // namespace

Precision precision_of(const TrainerOptions& o) {
  Precision p;
  if (o.compute == Compute::fp64) {
    p.matrices = p.vectors = p.residual = p.gradients = DType::f64;
  } else if (in_16_bits(o)) {
    p.matrices = p.gradients = o.compute == Compute::bf16 ? DType::bf16 : DType::f16;
  }
  if (o.gradients) p.gradients = *o.gradients;
  return p;
}

bool in_16_bits(const TrainerOptions& o) {
  const bool narrow = o.compute == Compute::bf16 || o.compute == Compute::fp16;
  return narrow && o.device.kind == Device::Kind::cuda;
}

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

Trainer::Trainer(const TrainerOptions& options) : options_(options) {
  options_.rounding = rounding_in(options_.compute, options_.rounding);
  if (options_.time == 0) options_.time = options_.config.context;
  if (!options_.loss_scale) {
    const bool wanted = options_.compute == Compute::fp16;
    options_.loss_scale = wanted ? static_cast<double>(LossScale().scale) : 0.0;
  }
  if (!(*options_.loss_scale >= 0 && *options_.loss_scale <= 0x1p120)) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("a loss scale of {}, expected 0 (none) to 2^120", *options_.loss_scale));
  }
  if (options_.accumulation < 1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("gradients of {} batches in a step, expected at least 1",
                            options_.accumulation));
  }
  validate(options_.config);
  ops_ = make_ops(options_);
  ModelOptions m;
  m.batch = options_.batch;
  m.time = options_.time;
  m.precision = precision_of(options_);
  m.attention = options_.attention;
  m.fused = options_.compiled;
  m.checkpoints = options_.checkpoints;
  m.logits_bytes = options_.logits_bytes;
  m.scaled = scales(options_);
  model_ = std::make_unique<Model>(options_.config, m, *ops_);
  model_->initialize(options_.seed);
  if (m.scaled) set_loss_scale(static_cast<float>(*options_.loss_scale), 0);
  if (options_.optimizer == "none") return;
  optimizer_.emplace(make_optimizer(options_, *model_));
  if (!options_.overlap) return;
  if (options_.device.kind != Device::Kind::cuda || options_.clip_norm > 0 || m.scaled) {
    throw Error(ErrorCode::unsupported,
                "updates while backward goes on are for GPUs, without clipping and without a loss "
                "scale, expected device cuda and 0 for both");
  }
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
  void begin(Phase phase, int64_t layer) override { trainer.ranges_.begin(phase, layer); }
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
  MemoryUse use;
  use[MemoryClass::parameters] = model_->param_bytes();
  use[MemoryClass::gradients] = model_->grad_bytes();
  if (optimizer_) use[MemoryClass::state] = static_cast<size_t>(optimizer_->state_bytes());
  // The arena is one block; the class of each byte is that of the step's highest moment.
  const Plan& plan = model_->arena().of(Model::training);
  const auto classes = at_peak(plan);
  for (int c = 0; c < kMemoryClasses; ++c) use.of[c] += classes[static_cast<size_t>(c)];
  return use;
}

}  // namespace gallop::gpt
