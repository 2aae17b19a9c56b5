// SPDX-License-Identifier: MIT
// What a trainer is put together from, by its options once these are settled.
#pragma once

#include <memory>
#include <vector>

#include "gpt/trainer.h"

namespace gallop::gpt {

// With what was left open; throws where they make no sense.
TrainerOptions settled(TrainerOptions options);
bool scales(const TrainerOptions& options);  // its loss

std::unique_ptr<Ops> make_ops(const TrainerOptions& options);
ModelOptions model_options(const TrainerOptions& options);
Options optimizer_options(const TrainerOptions& options);

// One for what is decayed and one for what is not.
struct ParamGroup {
  std::vector<Param> params;
  GroupOptions options;
};
std::vector<ParamGroup> param_groups(const TrainerOptions& options, const Model& model);

// With as many bytes of optimizer state.
MemoryUse memory_use(const Model& model, size_t state_bytes);

}  // namespace gallop::gpt
