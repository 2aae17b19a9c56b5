// SPDX-License-Identifier: MIT
// Products of matrices: how many a step asks for, and how fast they can be.
#pragma once

#include <memory>

#include "bench/step_bench.h"

namespace gallop::bench {

// Floating-point operations of the products of one step, each counted whole even where only one
// half of a symmetric result is computed; without changes of bases, which few steps have. 0 for
// most rules.
double product_flops(const StepContender& c, const ShapeList& list);

// One large product after the other on every thread, in the precision that a contender's are in.
class CpuProducts {
 public:
  CpuProducts(bool wide, int threads);
  void run(int iterations);
  double flops() const { return 2.0 * kSide * kSide * kSide * threads_; }

 private:
  static constexpr int64_t kSide = 768;  // its three matrices fit a core's share of the caches
  bool wide_;
  int threads_;
  std::shared_ptr<float[]> memory_;
};

// Of a row that has some: by its time, and of what products reach in the same run.
void add_products(lab::Row& row, double flops, double seconds, double ceiling);

}  // namespace gallop::bench
