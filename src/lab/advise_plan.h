// SPDX-License-Identifier: MIT
// Memory and bytes of a step that is not taken.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/shapes.h"
#include "gpt/trainer_parts.h"
#include "lab/advise.h"

namespace gallop::lab {

// One way of taking a step, with memory for all but the state.
struct Way {
  bool overlap = false, recompute = false;
  gpt::MemoryUse use;
  size_t allocated = 0;
};

// What all optimizers are tried on.
struct Subject {
  gpt::TrainerOptions trainer;
  std::optional<bench::ShapeList> shapes;  // else a model
  std::unique_ptr<gpt::Ops> ops;
  std::unique_ptr<gpt::Model> model;  // as in the first way
  std::vector<Way> ways;              // the first that fits is taken
  bool asked_device = false;
};

Subject subject_of(const AdviseOptions& options);
int64_t time_of(const Subject& subject);  // tokens of a sequence

struct Update {
  size_t state_bytes = 0;
  double bytes = 0, seconds = 0;
};

Update update_of(const std::string& optimizer, const Subject& subject, const StatePolicy& policy,
                 const Hardware& on);

}  // namespace gallop::lab
