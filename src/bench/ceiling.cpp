// SPDX-License-Identifier: MIT
#include "bench/ceiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "core/pages.h"
#include "cpu/isa.h"
#include "cpu/thread_pool.h"
#include "cpu/walk.h"
#include "gallop/error.h"

namespace gallop::bench {
namespace {

const cpu::Toolkit& tools() { return *cpu::toolkits()[static_cast<size_t>(cpu::choose_isa())]; }

// Floats between arrays whose size is a power of two, so that they do not meet in the same cache
// sets and page offsets.
constexpr int64_t kSkew = int64_t{13} * 16;

// Calls f(first, n) with equal shares of n elements in blocks, one for each thread.
template <class F>
void share(int64_t n, int threads, F f) {
  auto work = [&](int i, int count) {
    const int64_t blocks = (n + cpu::kBlock - 1) / cpu::kBlock;
    const int64_t first = blocks * i / count * cpu::kBlock;
    const int64_t last = std::min(n, blocks * (i + 1) / count * cpu::kBlock);
    if (first < last) f(first, last - first);
  };
  cpu::ThreadPool::instance().run(threads, work);
}

}  // namespace

std::shared_ptr<float[]> touched_floats(int64_t n, int threads, float value) {
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(n, 1)) * sizeof(float);
  const detail::Pages pages = detail::map_pages(bytes);
  if (pages.data == nullptr) {
    throw Error(ErrorCode::out_of_memory, fmt::format("no memory for {} bytes", bytes));
  }
  auto* data = static_cast<float*>(pages.data);
  share(n, threads, [&](int64_t first, int64_t count) {
    std::fill(data + first, data + first + count, value);
  });
  return {data, [pages](float*) { detail::unmap(pages); }};
}

Read4Write3::Read4Write3(int64_t elements, int threads)
    : n_(elements),
      threads_(threads),
      data_(touched_floats(4 * (elements + kSkew), threads, 0.0f)) {}

void Read4Write3::run(int iterations) {
  float* d = data_.get();
  const int64_t apart = n_ + kSkew;
  for (int i = 0; i < iterations; ++i) {
    backward_ = !backward_;  // as steps do
    share(n_, threads_, [&](int64_t first, int64_t n) {
      const int64_t start = first / cpu::kBlock, blocks = (n + cpu::kBlock - 1) / cpu::kBlock;
      const auto piece = [&](int64_t block, int64_t count, int64_t next) {
        float* at = d + block * cpu::kBlock;
        const int64_t elements = std::min(count * cpu::kBlock, n_ - block * cpu::kBlock);
        tools().read4_write3(at, at + apart, at + 2 * apart, at + 3 * apart, elements,
                             next * cpu::kBlock);
      };
      cpu::walk(start, start + blocks, backward_, piece);
    });
  }
}

void Read4Write3::run_read(int iterations) const {
  const float* d = data_.get();
  std::atomic<float> sum{0};
  for (int i = 0; i < iterations; ++i) {
    share(n_, threads_, [&](int64_t first, int64_t n) {
      sum.store(tools().read2(d + first, d + n_ + kSkew + first, n), std::memory_order_relaxed);
    });
  }
}

Ceilings measure_ceilings(int64_t bytes, int threads) {
  const int64_t n = bytes / 8;
  auto data = touched_floats(2 * n, threads, 0.0f);
  Read4Write3 step(bytes / 16, threads);
  const auto copy = [&](int iterations) {
    for (int i = 0; i < iterations; ++i) {
      share(n, threads, [&](int64_t first, int64_t count) {
        tools().copy(data.get() + n + first, data.get() + first, count * 4);
      });
    }
  };
  const std::function<void(int)> copy_run = copy, step_run = [&](int k) { step.run(k); };
  std::vector<Contender> contenders = {
      {"copy", Batch{copy_run, calibrate_iterations(copy_run, 2e-3)}},
      {"read4_write3", Batch{step_run, calibrate_iterations(step_run, 2e-3)}}};
  SamplerOptions options;
  options.time_limit_s = 0.5;
  const auto results = measure(contenders, options);
  return {static_cast<double>(8 * n) / results[0].summary.median * 1e-9,
          step.bytes() / results[1].summary.median * 1e-9};
}

}  // namespace gallop::bench
