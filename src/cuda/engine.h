// SPDX-License-Identifier: MIT
// Steps on one GPU. What a step needs stays in device memory: nothing comes back to the host unless
// it is asked for with pull().
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gallop/optimizer.h"
#include "optimizer/rule.h"

namespace gallop {
struct Slot;
struct Group;
}  // namespace gallop

namespace gallop::cuda {

class Engine {
 public:
  // The vectors are the optimizer's own and outlive the engine.
  Engine(const Rule& rule, const Options& options, const std::vector<Slot>& slots,
         const std::vector<Group>& groups);
  ~Engine();

  // Parameters were added or have moved: everything is uploaded before the next step.
  void changed();
  void grad_changed(size_t slot);
  void group_changed(size_t group);  // its hyper-parameters or schedule: on the last step's stream

  // The norm of all gradients, when asked for, and whether to skip.
  void begin(const StepArgs& args, bool needs_norm);
  // The rule's entry for those parameters; `finish`: nothing follows in this step.
  void update(int entry, std::span<const size_t> params, bool finish);
  void count_skipped();
  void zero_grads();

  // What the device knows of steps and scalars, into (or from) the optimizer's fields. Between a
  // change and the next step it knows nothing that they do not.
  struct Totals {
    int64_t skipped, not_finite;
    double norm;
  };
  std::optional<Totals> pull(std::vector<Slot>& slots, std::vector<Group>& groups);
  void push(int64_t skipped, int64_t not_finite, uint64_t seed);
  const int64_t* skipped_at() const;  // on the device, from the first step on

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gallop::cuda
