// SPDX-License-Identifier: MIT
// Before a training step is timed: does a small model of the same kind compute what fp64 does?
#pragma once

#include <map>
#include <set>
#include <string>

#include "data/loader.h"
#include "gpt/trainer.h"

namespace gallop::bench {

// The largest relative error, norm by norm, that a gradient may have; a loss: a tenth of it.
double gradient_bound(gpt::Compute compute);

// Norms, activation, positions, biases, head and the heads' width as the model's, the rest small.
gpt::Config small_like(const gpt::Config& config);

// Tokens by a function of seed and position alone, ready to train with.
data::Batch random_batch(int64_t vocabulary, int64_t rows, int64_t time, uint64_t seed);

struct Agreement {
  double loss_error = 0, gradient_error = 0;
  std::string worst;  // the gradient with that error
};

// Of a model like the one asked for with fp64 on the CPU; throws what the model's device throws.
Agreement compare_with_fp64(const gpt::TrainerOptions& options);

// Throws unless both errors are within the bounds.
void require_agreement(const Agreement& agreement, gpt::Compute compute);

// Each kind is checked once.
class TrainChecks {
 public:
  // Throws unless the model and its optimizer agree.
  Agreement check(const gpt::TrainerOptions& options);

 private:
  std::map<std::string, Agreement> models_;
  std::set<std::string> optimizers_;
};

}  // namespace gallop::bench
