// SPDX-License-Identifier: MIT
// Sudden rises of a training loss, found step by step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace gallop::lab {

// A spike begins with a loss above the median of the last 64 quiet ones by more than 8 of their
// robust standard deviations (1.4826 times the median distance from the median) and by more than 2
// % of it: batches differ by chance, and a loss that falls has its median above it, so that neither
// is taken for one. It ends when the loss is back under that line; while it lasts, its losses do
// not count as quiet. A rise that lasts for 64 steps is the new level, and one spike. A loss that
// is not finite is divergence, which runs end with, and no spike.
class LossSpikes {
 public:
  void add(double loss);

  int64_t count() const { return count_; }
  double worst() const { return worst_; }  // the highest above its median

 private:
  std::deque<double> quiet_;
  size_t lasting_ = 0;  // steps of the one under way
  int64_t count_ = 0;
  double worst_ = 0;
};

}  // namespace gallop::lab
