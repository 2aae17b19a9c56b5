// SPDX-License-Identifier: MIT
#include "gpt/trainer_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "gallop/error.h"
#include "gallop/rules.h"

namespace gallop::gpt {

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

TrainerOptions settled(TrainerOptions o) {
  o.rounding = rounding_in(o.compute, o.rounding);
  if (o.time == 0) o.time = o.config.context;
  if (o.accumulation < 1) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("gradients of {} batches in a step, expected at least 1", o.accumulation));
  }
  validate(o.config);
  if (!o.loss_scale) {
    o.loss_scale = o.compute == Compute::fp16 ? static_cast<double>(LossScale().scale) : 0.0;
  }
  if (!(*o.loss_scale >= 0 && *o.loss_scale <= 0x1p120)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a loss scale of {}, expected 0 (none) to 2^120", *o.loss_scale));
  }
  if (o.overlap && (o.clip_norm > 0 || scales(o))) {
    throw Error(ErrorCode::unsupported,
                "updates while backward goes on do not know all gradients first, expected no "
                "clipping and no loss scale");
  }
  return o;
}

bool scales(const TrainerOptions& o) { return *o.loss_scale > 0; }

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

ModelOptions model_options(const TrainerOptions& o) {
  ModelOptions m;
  m.batch = o.batch;
  m.time = o.time;
  m.precision = precision_of(o);
  m.attention = o.attention;
  m.fused = o.compiled;
  m.checkpoints = o.checkpoints;
  m.logits_bytes = o.logits_bytes;
  m.scaled = scales(o);
  // Two could not go on while the update of the one before is under way.
  constexpr int64_t kPlaces = 3;
  const bool taken_at_once = o.overlap && o.optimizer != "none" && o.accumulation == 1;
  if (taken_at_once && o.config.layers > kPlaces) m.grad_places = kPlaces;
  return m;
}

Options optimizer_options(const TrainerOptions& o) {
  Options options;
  options.device = o.device;
  options.threads = o.threads;
  options.clip_norm = o.clip_norm;
  options.skip_nonfinite = scales(o);
  options.seed = o.seed;
  if (o.compiled && o.device.kind == Device::Kind::cuda) options.mode = Mode::compiled;
  return options;
}

std::vector<ParamGroup> param_groups(const TrainerOptions& o, const Model& model) {
  std::vector<ParamGroup> groups(2);
  const bool apart = !o.decay_vectors && rule_info(o.optimizer).knob("weight_decay") >= 0;
  for (size_t i = 0; i < model.size(); ++i) {
    const ParamSpec& spec = model.spec(i);
    const Tensor p = model.param(i), g = model.grad(i);
    const bool vector = !spec.matrix() || spec.part == Part::positions;
    groups[apart && vector].params.push_back(
        {spec.name, spec.shape, p.data, g.data, p.type, g.type, spec.role});
  }
  for (ParamGroup& group : groups) {
    group.options.hyper = o.hyper;
    group.options.state = o.state;
    group.options.schedule = o.schedule;
    if (in_16_bits(o)) group.options.rounding = o.rounding;
  }
  Hyper& hyper = groups[1].options.hyper;
  std::erase_if(hyper, [](const auto& h) { return h.first == "weight_decay"; });
  hyper.emplace_back("weight_decay", 0.0);
  std::erase_if(groups, [](const ParamGroup& group) { return group.params.empty(); });
  return groups;
}

MemoryUse memory_use(const Model& model, size_t state_bytes) {
  MemoryUse use;
  use[MemoryClass::parameters] = model.param_bytes();
  use[MemoryClass::gradients] = model.grad_bytes();
  use[MemoryClass::state] = state_bytes;
  // The arena is one block; the class of each byte is that of the step's highest moment.
  const auto classes = at_peak(model.arena().of(Model::training));
  for (int c = 0; c < kMemoryClasses; ++c) use.of[c] += classes[static_cast<size_t>(c)];
  return use;
}

}  // namespace gallop::gpt
