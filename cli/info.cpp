// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/ceiling.h"
#include "bench/machine.h"
#include "bench/nvml.h"
#include "bench/step_bench.h"
#include "blas/blas.h"
#include "cli/common.h"
#include "cpu/isa.h"
#include "cpu/thread_pool.h"
#include "cuda/memory.h"
#include "gallop/error.h"
#include "gallop/version.h"
#include "jit/cache.h"
#include "jit/compiler.h"

namespace gallop::cli {
namespace {

std::string size_text(int64_t bytes) {
  if (bytes <= 0) return "unknown";
  if (bytes >= int64_t{1} << 30)
    return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
  if (bytes >= 1 << 20) return fmt::format("{:g} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{} KiB", bytes >> 10);
}

// A copy within the GPU's memory, unless its driver cannot run this build.
template <class Add>
void add_gpu_ceiling(int device, Add add) {
  const std::string what = fmt::format("cuda:{} copy ceiling", device);
  try {
    cuda::require_device(device);
    add(what.c_str(), fmt::format("{:.0f} GB/s over 4 GiB", bench::measure_gpu_copy(device)));
  } catch (const Error& e) {
    add(what.c_str(), fmt::format("not measured: {}", e.what()));
  }
}

std::string rule_compiler() {
  try {
    return jit::compiler().path;
  } catch (const Error& e) {
    return e.what();
  }
}

std::string rule_cache() {
  const jit::Cache cache = jit::Cache::of_user();
  return cache.usable() ? cache.folder() : fmt::format("nothing: {}", cache.problem());
}

lab::Table describe(const Where& where, bool measure) {
  const bench::Machine m = bench::describe_machine();
  lab::Table table;
  const auto add = [&](const char* what, lab::Value value) {
    table.rows.push_back(lab::Row().set("what", what).set("value", std::move(value)));
  };
  add("gallop", GALLOP_VERSION);
  add("cpu", m.cpu);
  add("cpus", fmt::format("{} of {}", m.available_cpus, m.logical_cpus));
  add("caches", fmt::format("L1d {}, L2 {}, L3 {}", size_text(m.l1d_bytes), size_text(m.l2_bytes),
                            size_text(m.l3_bytes)));
  add("memory", size_text(m.memory_bytes));
  std::vector<std::string> isas;
  for (const cpu::Toolkit* t : cpu::toolkits()) {
    isas.push_back(fmt::format("{}{}", t->isa, cpu::runs_here(t->isa) ? "" : " (not this CPU)"));
  }
  add("isa", std::string(cpu::toolkits()[static_cast<size_t>(cpu::choose_isa())]->isa));
  add("isas in this build", fmt::format("{}", fmt::join(isas, ", ")));
  const int threads = where.threads > 0 ? where.threads : cpu::default_threads();
  add("threads", fmt::format("{}", threads));
  add("blas", blas::describe());
  add("os", fmt::format("{}, {}", m.os, m.kernel));
  add("compiler", m.compiler);
  add("rules are compiled by", rule_compiler());
  if (cuda::built()) add("and for GPUs by", cuda::describe_compiler());
  add("and kept in", rule_cache());
  if (!m.governor.empty()) add("governor", m.governor);
  const auto gpus = bench::find_gpus();
  if (cuda::emulated()) add("cuda:0", "emulated by the CPU, for tests");
  if (gpus.empty()) add("gpu", "none found");
  for (const bench::Gpu& g : gpus) {
    add("gpu", fmt::format("{}, {}, driver {}", g.name, size_text(g.memory_bytes), g.driver));
  }
  if (measure) {
    // Well beyond the last-level cache, but no more than a quarter of memory.
    const int64_t wanted = std::max<int64_t>(4 * m.l3_bytes, int64_t{1} << 30);
    const int64_t bytes = m.memory_bytes > 0 ? std::min(wanted, m.memory_bytes / 4) : wanted;
    const bench::Ceilings c = bench::measure_ceilings(bytes, threads);
    add("copy ceiling", fmt::format("{:.1f} GB/s over {}", c.copy_gb_s, size_text(bytes)));
    add("4-read-3-write ceiling",
        fmt::format("{:.1f} GB/s over {}", c.read4_write3_gb_s, size_text(bytes)));
  }
  if (measure && cuda::built() && !cuda::emulated()) {
    for (size_t i = 0; i < gpus.size(); ++i) add_gpu_ceiling(static_cast<int>(i), add);
  }
  return table;
}

}  // namespace

void add_info(CLI::App& app) {
  struct State {
    Output output;
    Where where;
    bool no_measure = false;
  };
  auto state = std::make_shared<State>();
  CLI::App* info = app.add_subcommand("info",
                                      "This machine: CPU, caches, instruction sets, GPU, "
                                      "and what its memory can do");
  info->add_flag("--no-measure", state->no_measure, "Leave out the measured ceilings");
  state->where.add_to(*info);
  state->output.add_to(*info);
  info->callback([state] {
    state->where.parsed();
    state->output.emit(describe(state->where, !state->no_measure));
  });
}

}  // namespace gallop::cli
