// SPDX-License-Identifier: MIT
#include "cli/trials.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/nvml.h"

namespace gallop::cli {

lab::TrialPoolOptions trial_pool(const Where& where, int jobs, const lab::Place& place) {
  lab::TrialPoolOptions o;
  const bool on_gpu = where.device.starts_with("cuda");
  const size_t gpus = bench::find_gpus().size(), local = static_cast<size_t>(place.local);
  if (on_gpu && where.device == "cuda" && gpus > 0) {
    for (size_t i = local % gpus; i < gpus; i += static_cast<size_t>(place.ranks)) {
      o.devices.push_back(fmt::format("cuda:{}", i));
    }
  }
  o.jobs = jobs > 0 ? jobs : on_gpu ? std::max(1, static_cast<int>(o.devices.size())) : 1;
  o.divide_cpus = o.jobs > 1 || place.ranks > 1 || (!on_gpu && where.threads == 0);
  o.cpus = place.cpus;
  return o;
}

}  // namespace gallop::cli
