// SPDX-License-Identifier: MIT
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <random>

#include "bench/clocks.h"
#include "bench/machine.h"
#include "bench/nvml.h"
#include "commit.gen.h"
#include "gallop/version.h"
#include "lab/store.h"

namespace gallop::lab {

Origin describe_origin(const std::string& command, std::optional<int64_t> seed) {
  Origin o;
  std::random_device bits;
  o.key = fmt::format("{:08x}{:08x}{:08x}{:08x}", bits(), bits(), bits(), bits());
  o.time = fmt::format(
      "{:%Y-%m-%dT%H:%M:%SZ}",
      fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
  o.command = command;
  o.seed = seed;
  o.version = GALLOP_VERSION;
  o.commit = kCommit;
  const bench::Machine m = bench::describe_machine();
  o.compiler = m.compiler;
  o.cpu = m.cpu;
  o.cpus = m.available_cpus;
  o.os = fmt::format("{}, {}", m.os, m.kernel);
  std::vector<std::string> names;
  const std::vector<bench::Gpu> gpus = bench::find_gpus();
  for (const bench::Gpu& gpu : gpus) {
    names.push_back(gpu.name);
    o.driver = gpu.driver;
  }
  o.gpu = fmt::format("{}", fmt::join(names, ", "));
  o.clocks = bench::clocks_text(m, gpus);
  return o;
}

}  // namespace gallop::lab
