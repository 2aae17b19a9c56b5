// SPDX-License-Identifier: MIT
// Changes to the averages and bases that rules over matrices keep, by kernels that do nothing where
// the step was skipped or has nothing to change.
#pragma once

#include <cuda_runtime_api.h>

#include "core/matrices.h"
#include "cuda/norm_data.h"

namespace gallop::cuda {

// All matrices of a batch, which are of one shape. `change`: by member, see look_at_bases().
struct BaseStates {
  const Tensor* tensors;
  const unsigned* members;
  const int* change;
  unsigned count;  // members
  View view;
  bool wide;  // fp64, else fp32
};

// G = (1 - weight) G + weight square, of matrix `matrix` of a member.
cudaError_t launch_add_square(const BaseStates& on, unsigned member, Index matrix, int state,
                              bool left, double weight, const void* square, void* stream);

struct Refining {
  BaseStates on;
  Linear::Sides bases, grams;
  int turned, sorted;
  void* spare;  // room for a plane of every member, `apart` elements from one to the next
  Index apart;
  void* work;  // of every team
  unsigned teams, blocks_a_team;
  unsigned* met;  // of every team
};
// Elements of work that a team needs.
Index refining_work(const View& view);
// All matrices whose bases are to be refined.
cudaError_t launch_refine(const Refining& r, void* stream);

}  // namespace gallop::cuda
