// SPDX-License-Identifier: MIT
// cached_start OPTIMIZER|FILE.h [cpu|cuda]
//
// What a process waits for before its first compiled step: run it twice with the same GALLOP_CACHE,
// the second time everything comes from the cache. The device is woken up before the clock starts.
#include <chrono>
#include <cstdio>
#include <string>

#include "cuda/memory.h"
#include "gallop/gallop.h"
#include "jit/library.h"

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

void start(const std::string& what, gallop::Device device) {
  constexpr int64_t kElements = 1 << 16;
  const bool gpu = device.kind == gallop::Device::Kind::cuda;
  // Room for a parameter and its gradient.
  std::vector<float> here(gpu ? 0 : 2 * kElements);
  float* memory = gpu ? static_cast<float*>(gallop::cuda::allocate(0, 8 * kElements)) : here.data();
  gallop::Options options;
  options.device = device;
  options.mode = gallop::Mode::compiled;

  const Clock::time_point begin = Clock::now();
  gallop::Optimizer o = what.ends_with(".h") ? gallop::Optimizer::from_rule_file(what, options)
                                             : gallop::Optimizer(what, options);
  o.add_group({{"p", {256, kElements / 256}, memory, memory + kElements}});
  o.step();
  if (gpu) gallop::cuda::synchronize(0);
  const double ms = ms_since(begin);
  const gallop::jit::Spent spent = gallop::jit::spent();
  std::printf("%s on %s: first step after %.1f ms, %.1f of them for code: %d compiled, %d cached\n",
              what.c_str(), gallop::to_string(device).c_str(), ms, 1e3 * spent.seconds,
              spent.compiled, spent.from_cache);
  if (gpu) gallop::cuda::release(0, memory);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) throw gallop::Error(gallop::ErrorCode::invalid_argument, "no optimizer was named");
  start(argv[1], gallop::parse_device(argc > 2 ? argv[2] : "cpu"));
} catch (const std::exception& e) {
  std::fprintf(stderr, "cached_start: %s\n", e.what());
  return 1;
}
