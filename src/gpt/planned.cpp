// SPDX-License-Identifier: MIT
#include "gpt/planned.h"

#include "gpt/trainer_parts.h"

namespace gallop::gpt {
namespace {

size_t state_bytes(const TrainerOptions& o, const Model& model) {
  if (o.optimizer == "none") return 0;
  const Optimizer optimizer(o.optimizer, optimizer_options(o));
  int64_t bytes = 0;
  for (const ParamGroup& group : param_groups(o, model)) {
    bytes += optimizer.state_bytes_of(group.params, group.options);
  }
  return static_cast<size_t>(bytes);
}

}  // namespace

Planned plan_training(const TrainerOptions& options) {
  const TrainerOptions o = settled(options);
  const std::unique_ptr<Ops> ops = make_ops(o);
  ModelOptions how = model_options(o);
  how.only_planned = true;
  const Model model(o.config, how, *ops);
  const size_t state = state_bytes(o, model);
  return {memory_use(model, state),
          model.param_bytes() + model.grad_bytes() + state + model.arena().bytes()};
}

}  // namespace gallop::gpt
