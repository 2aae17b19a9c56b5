// SPDX-License-Identifier: MIT
#include "gpt/trainer_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "gallop/error.h"
#include "gallop/rules.h"

namespace gallop::gpt {
namespace {

Precision precision_of(const TrainerOptions& o) {
  Precision p;
  switch (o.compute) {
    case Compute::fp32:
    case Compute::tf32:
      break;
    case Compute::fp64:
      p.matrices = p.vectors = p.residual = p.gradients = DType::f64;
      break;
    case Compute::bf16:
      p.matrices = p.gradients = DType::bf16;
      break;
    case Compute::fp16:
      p.matrices = p.gradients = DType::f16;
      break;
  }
  if (o.gradients) p.gradients = *o.gradients;
  return p;
}

}  // namespace

TrainerOptions settled(TrainerOptions o) {
  o.rounding = rounding_in(o.compute, o.rounding);
  if (o.time == 0) o.time = o.config.context;
  if (o.accumulation < 1) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("gradients of {} batches in a step, expected at least 1", o.accumulation));
  }
  validate(o.config);
  return o;
}

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
  throw Error(
      ErrorCode::unsupported,
      fmt::format("training in {} on the CPU, expected fp32 or fp64", to_string(o.compute)));
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
  return m;
}

Options optimizer_options(const TrainerOptions& o) {
  Options options;
  options.device = o.device;
  options.threads = o.threads;
  options.clip_norm = o.clip_norm;
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
    if (in_16_bits(o.compute)) group.options.rounding = o.rounding;
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
