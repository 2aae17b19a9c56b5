// SPDX-License-Identifier: MIT
#include "lab/loss_spikes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/statistics.h"

namespace gallop::lab {
namespace {

constexpr size_t kWindow = 64, kFewest = 16;
constexpr double kDeviations = 8, kLeast = 0.02, kNormal = 1.4826;

}  // namespace

void LossSpikes::add(double loss) {
  if (!std::isfinite(loss)) return;
  if (quiet_.size() >= kFewest) {
    std::vector<double> values(quiet_.begin(), quiet_.end());
    const double middle = bench::median(values);
    for (double& v : values) v = std::fabs(v - middle);
    const double deviation = kNormal * bench::median(values);
    const double rise = loss - middle;
    if (rise > std::max(kDeviations * deviation, kLeast * std::fabs(middle))) {
      if (lasting_++ == 0) ++count_;
      worst_ = std::max(worst_, rise);
      if (lasting_ < kWindow) return;
      quiet_.clear();
    }
  }
  lasting_ = 0;
  quiet_.push_back(loss);
  if (quiet_.size() > kWindow) quiet_.pop_front();
}

}  // namespace gallop::lab
