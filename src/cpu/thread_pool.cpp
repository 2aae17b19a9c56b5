// SPDX-License-Identifier: MIT
#include "cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "gallop/error.h"

namespace gallop::cpu {
namespace {

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// About 50 us: longer than the gap between the passes of a step, shorter than a training step.
constexpr int kSpins = 2000;

ThreadPool* g_pool = nullptr;

}  // namespace

struct ThreadPool::Worker {
  alignas(64) std::atomic<int> started{0};  // number of the newest job handed to this worker
  Task task = nullptr;
  void* context = nullptr;
  int index = 0, count = 0;
  alignas(64) std::atomic<int> finished{0};
};

ThreadPool& ThreadPool::instance() {
  static const bool once = [] {
    g_pool = new ThreadPool;
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
    return true;
  }();
  (void)once;
  return *g_pool;
}

void ThreadPool::after_fork_in_child() {
  // The parent's workers do not exist here, and its lock may be held for ever.
  g_pool = new ThreadPool;
}

void ThreadPool::serve(Worker& w) {
  for (int seen = 0;;) {
    for (int i = 0; i < kSpins && w.started.load(std::memory_order_acquire) == seen; ++i) relax();
    w.started.wait(seen, std::memory_order_acquire);
    seen = w.started.load(std::memory_order_acquire);
    w.task(w.context, w.index, w.count);
    w.finished.store(seen, std::memory_order_release);
  }
}

void ThreadPool::grow(int workers) {
  while (static_cast<int>(workers_.size()) < workers) {
    auto w = std::make_unique<Worker>();
    std::thread([p = w.get()] { serve(*p); }).detach();
    workers_.push_back(w.release());
  }
}

void ThreadPool::run(int count, Task task, void* context) {
  if (count <= 1 || busy_.test_and_set(std::memory_order_acquire)) {
    for (int i = 0; i < count; ++i) task(context, i, count);
    return;
  }
  grow(count - 1);
  for (int i = 1; i < count; ++i) {
    Worker& w = *workers_[static_cast<size_t>(i - 1)];
    w.task = task;
    w.context = context;
    w.index = i;
    w.count = count;
    w.started.fetch_add(1, std::memory_order_release);
    w.started.notify_one();
  }
  task(context, 0, count);
  for (int i = 1; i < count; ++i) {
    Worker& w = *workers_[static_cast<size_t>(i - 1)];
    const int job = w.started.load(std::memory_order_relaxed);
    for (int spins = 0; w.finished.load(std::memory_order_acquire) != job; ++spins) {
      spins < kSpins ? relax() : std::this_thread::yield();
    }
  }
  busy_.clear(std::memory_order_release);
}

int default_threads() {
  for (const char* variable : {"GALLOP_NUM_THREADS", "OMP_NUM_THREADS"}) {
    const char* text = std::getenv(variable);
    if (text == nullptr || *text == 0) continue;
    int n = 0;
    const auto [end, error] = std::from_chars(text, text + std::strlen(text), n);
    // OMP_NUM_THREADS may be a list, one number per nesting level: the first is ours.
    if (error == std::errc() && n > 0 && (*end == 0 || *end == ',')) return n;
    throw Error(ErrorCode::invalid_argument,
                std::string(variable) + "=" + text + ": expected a whole number above 0");
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace gallop::cpu
