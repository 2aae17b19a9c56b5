// SPDX-License-Identifier: MIT
// Blocks that work on one thing and wait for one another. All of them must be running: they come
// from a cooperative launch.
#pragma once

#include "cuda/step_data.h"

namespace gallop::cuda {
namespace {

class Team {
 public:
  // met: how often blocks of the team have come, zero before the launch.
  __device__ Team(unsigned part, unsigned parts, unsigned* met)
      : part_(part), parts_(parts), met_(met) {}

  __device__ unsigned part() const { return part_; }
  __device__ unsigned parts() const { return parts_; }
  // This thread among all of the team's.
  __device__ unsigned first() const { return part_ * kThreads + threadIdx.x; }
  __device__ unsigned stride() const { return parts_ * kThreads; }

  // What the others wrote before they came is seen by those who leave.
  __device__ void meet() {
    __syncthreads();
    if (parts_ == 1) return;
    if (threadIdx.x == 0) {
      wanted_ += parts_;
      __threadfence();
      atomicAdd(met_, 1u);
      while (*static_cast<volatile unsigned*>(met_) < wanted_) __nanosleep(20);
      __threadfence();
    }
    __syncthreads();
  }

 private:
  unsigned part_, parts_;
  unsigned* met_;
  unsigned wanted_ = 0;
};

}  // namespace
}  // namespace gallop::cuda
