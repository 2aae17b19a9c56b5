// SPDX-License-Identifier: MIT
#include "bench/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>

#include "bench/machine_files.h"

namespace gallop::bench {
namespace {

int affinity_cpus() {
  // The kernel refuses a mask smaller than its own, so the mask grows until it is taken.
  for (size_t cpus = 1024; cpus <= (size_t{1} << 20); cpus *= 2) {
    cpu_set_t* mask = CPU_ALLOC(cpus);
    if (mask == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const bool known = sched_getaffinity(0, bytes, mask) == 0;
    const int count = known ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (known) return count;
  }
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

std::string build_flags() {
  std::string flags;
#ifdef GALLOP_CXX_FLAGS
  flags += GALLOP_CXX_FLAGS ", ";
#endif
#ifdef __OPTIMIZE__
  flags += "optimized";
#else
  flags += "not optimized";
#endif
#ifdef NDEBUG
  flags += ", NDEBUG";
#endif
#ifdef __FAST_MATH__
  flags += ", fast-math";
#endif
#if defined(__AVX512F__)
  flags += ", AVX-512";
#elif defined(__AVX2__)
  flags += ", AVX2";
#elif defined(__x86_64__)
  flags += ", SSE2";
#elif defined(__ARM_FEATURE_SVE)
  flags += ", SVE";
#elif defined(__aarch64__)
  flags += ", NEON";
#endif
#ifdef __FMA__
  flags += ", FMA";
#endif
#ifdef __SANITIZE_ADDRESS__
  flags += ", address sanitizer";
#endif
  return flags;
}

std::string compiler_name() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
  return fmt::format("gcc {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
  return {};
#endif
}

}  // namespace

Machine describe_machine(const std::string& file_root) {
  const MachineFiles files(file_root);
  Machine machine;
  utsname system{};
  if (uname(&system) == 0) {
    machine.kernel = fmt::format("{} {}", system.sysname, system.release);
  }
  machine.cpu = files.cpu_name();
  if (machine.cpu.empty()) machine.cpu = fmt::format("unnamed {} CPU", system.machine);
  machine.logical_cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  // Rounded down: a thread that shares the quota's last fraction would be throttled.
  const double quota = files.cgroup_cpus();
  machine.available_cpus = affinity_cpus();
  if (quota < machine.available_cpus) machine.available_cpus = std::max(1, static_cast<int>(quota));
  machine.l1d_bytes = files.cache_bytes(1);
  machine.l2_bytes = files.cache_bytes(2);
  machine.l3_bytes = files.cache_bytes(3);
  machine.memory_bytes = files.memory_bytes();
  machine.os = files.os_name();
  machine.compiler = compiler_name();
  machine.flags_note = build_flags();
  machine.governor = files.governor();
  machine.cpu_mhz = files.cpu_mhz();
  return machine;
}

}  // namespace gallop::bench
