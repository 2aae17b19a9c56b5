// SPDX-License-Identifier: MIT
#include "lab/advise_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <tuple>

#include "bench/products.h"
#include "cuda/memory.h"
#include "gallop/error.h"
#include "gpt/plan_ops.h"
#include "lab/step_model.h"
#include "optimizer/impl.h"

namespace gallop::lab {
namespace {

// "gpt2:12x768" and files; a model's name is not taken for a file's.
bool is_shapes(const std::string& text) {
  const std::string name = text.substr(0, text.find(':'));
  if (name == "gpt2" && name != text) return text.find('=') == std::string::npos;
  const auto& models = gpt::presets();
  return std::none_of(models.begin(), models.end(),
                      [&](const gpt::Preset& p) { return p.name == name; }) &&
         std::filesystem::is_regular_file(text);
}

bool usable_gpu() {
  if (!cuda::built() || cuda::emulated()) return false;
  try {
    cuda::require_device(0);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<bool> tries(Choice c) {
  if (c == Choice::either) return {false, true};
  return {c == Choice::yes};
}

void plan_ways(Subject& s, const AdviseOptions& o) {
  for (const bool recompute : tries(o.recompute)) {
    for (const bool overlap : tries(o.overlap)) {
      gpt::TrainerOptions t = s.trainer;
      t.overlap = overlap;
      t.checkpoints = recompute;
      // With a loss scale all gradients must be known first.
      if (overlap && o.overlap == Choice::either && t.compute == gpt::Compute::fp16) continue;
      t = gpt::settled(t);
      gpt::ModelOptions how = gpt::model_options(t);
      how.only_planned = true;
      auto model = std::make_unique<gpt::Model>(t.config, how, *s.ops);
      s.ways.push_back({overlap, recompute, gpt::memory_use(*model, 0),
                        model->param_bytes() + model->grad_bytes() + model->arena().bytes()});
      if (!s.model) s.model = std::move(model);
    }
  }
}

void plan_model(Subject& s, const AdviseOptions& o) {
  s.trainer.config = gpt::parse_model(o.model);
  if (o.on.gpu && s.trainer.compute == gpt::Compute::fp64) {
    throw Error(ErrorCode::unsupported,
                "training in fp64 on a GPU, expected fp32, tf32, bf16 or fp16");
  }
  if (o.on.gpu && s.trainer.config.width > gpt::cuda::kWidestNorm) {
    throw Error(ErrorCode::unsupported,
                fmt::format("a width of {} on a GPU, expected at most {}", s.trainer.config.width,
                            gpt::cuda::kWidestNorm));
  }
  if (!o.on.gpu || (o.ask_device && usable_gpu())) {
    try {
      s.ops = gpt::make_ops(gpt::settled(s.trainer));
      plan_ways(s, o);
      s.asked_device = true;
      return;
    } catch (const Error& e) {
      if (!o.on.gpu || e.code() != ErrorCode::unsupported) throw;
      s.ways.clear();
      s.model.reset();
    }
  }
  s.ops = std::make_unique<gpt::PlanOps>();
  plan_ways(s, o);
}

gpt::ParamGroup group_of_shapes(const Subject& s) {
  const gpt::Precision precision = gpt::precision_of(s.trainer);
  gpt::ParamGroup group;
  for (const bench::Shape& shape : s.shapes->shapes) {
    const bool matrix = shape.dims.size() > 1;
    Param p;
    p.name = shape.name, p.shape = shape.dims, p.role = shape.role;
    p.dtype = matrix ? precision.matrices : precision.vectors;
    p.grad_dtype = matrix ? precision.gradients : precision.vectors;
    group.params.push_back(std::move(p));
  }
  if (gpt::in_16_bits(s.trainer)) {
    group.options.rounding = gpt::rounding_in(s.trainer.compute, s.trainer.rounding);
  }
  return group;
}

int64_t elements(const Param& p) {
  int64_t n = 1;
  for (const int64_t d : p.shape) n *= d;
  return n;
}

void plan_shapes(Subject& s, const AdviseOptions& o) {
  s.shapes = bench::parse_shapes(o.model);
  Way way;
  for (const Param& p : group_of_shapes(s).params) {
    const auto n = static_cast<size_t>(elements(p));
    way.use[gpt::MemoryClass::parameters] += n * size_of(p.dtype);
    way.use[gpt::MemoryClass::gradients] += n * size_of(p.grad_dtype);
  }
  way.allocated = way.use.total();
  s.ways.push_back(way);
}

size_t state_bytes(const std::string& optimizer, Device device,
                   const std::vector<gpt::ParamGroup>& groups) {
  const Optimizer::Impl impl(optimizer, {});
  size_t bytes = 0;
  for (const gpt::ParamGroup& g : groups) {
    const Group group = impl.make_group(g.options);
    std::vector<Slot> slots;
    for (const Param& p : g.params) slots.push_back(impl.make_slot(p, group));
    bytes += plan_group(impl.rule, device, group, slots);
  }
  return bytes;
}

// Bytes of a step for one tensor. An optimizer on the CPU counts them; none of the memory that it
// maps is touched, as bf16 with its remainder is read and written as what it is: fp32.
int64_t bytes_of_step(const std::string& optimizer, Param p, GroupOptions options) {
  static float never_touched = 0;
  int64_t more = 0;
  if (options.rounding == Rounding::master || options.rounding == Rounding::remainder) {
    const bool narrow = p.dtype == DType::bf16 || p.dtype == DType::f16;
    if (narrow && options.rounding == Rounding::master) more = 2 * elements(p);
    if (narrow) p.dtype = DType::f32;
    options.rounding = Rounding::nearest;
  }
  p.data = p.grad = &never_touched;
  Optimizer counter(optimizer);
  counter.add_group({p}, options);
  return counter.bytes_per_step() + more;
}

bool exact_products(const Rule& rule) {
  const auto& states = rule.info.states;
  return std::any_of(states.begin(), states.end(),
                     [](const StateInfo& s) { return s.scratch && s.exact; });
}

}  // namespace

int64_t time_of(const Subject& s) {
  return s.trainer.time == 0 ? s.trainer.config.context : s.trainer.time;
}

Subject subject_of(const AdviseOptions& o) {
  Subject s;
  s.trainer.device.kind = o.on.gpu ? Device::Kind::cuda : Device::Kind::cpu;
  s.trainer.threads = o.threads;
  s.trainer.batch = o.batch;
  s.trainer.time = o.context;
  s.trainer.compute = o.compute.value_or(o.on.gpu ? gpt::Compute::bf16 : gpt::Compute::fp32);
  is_shapes(o.model) ? plan_shapes(s, o) : plan_model(s, o);
  return s;
}

Update update_of(const std::string& optimizer, const Subject& subject, const StatePolicy& policy,
                 const Hardware& on) {
  gpt::TrainerOptions t = gpt::settled(subject.trainer);
  t.optimizer = optimizer;
  std::vector<gpt::ParamGroup> groups =
      subject.model ? gpt::param_groups(t, *subject.model)
                    : std::vector<gpt::ParamGroup>{group_of_shapes(subject)};
  Update update;
  bench::ShapeList shapes;
  for (gpt::ParamGroup& g : groups) {
    g.options.state = policy;
    std::map<std::tuple<std::vector<int64_t>, Role, DType, DType, StateFormat>, int64_t> seen;
    for (const Param& p : g.params) {
      const StateFormat format = policy.choose(p);
      const auto [at, first] = seen.try_emplace({p.shape, p.role, p.dtype, p.grad_dtype, format});
      if (first) at->second = bytes_of_step(optimizer, p, g.options);
      const auto bytes = static_cast<double>(at->second);
      update.bytes += bytes;
      update.seconds += update_seconds(bytes, share_of_copy(format, on.gpu), 0, false, on);
      shapes.shapes.push_back({p.name, p.shape, p.role});
    }
  }
  update.state_bytes = state_bytes(optimizer, t.device, groups);
  bench::StepContender contender;
  contender.optimizer = optimizer;
  const double flops = bench::product_flops(contender, shapes);
  update.seconds += update_seconds(0, 1, flops, exact_products(find_rule(optimizer)), on);
  return update;
}

}  // namespace gallop::lab
