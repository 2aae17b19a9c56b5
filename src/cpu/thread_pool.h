// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <memory>
#include <vector>

namespace gallop::cpu {

// One pool per process. Own threads rather than OpenMP: they live beside another library's OpenMP
// runtime, survive fork (the child starts afresh), and wake within a microsecond while work keeps
// coming, then sleep.
class ThreadPool {
 public:
  using Task = void (*)(void* context, int index, int count);

  static ThreadPool& instance();

  // Calls task(context, i, count) for i in [0, count), each on a thread of its own, the caller's
  // among them, and returns when all have. When the pool is busy with another caller's work, the
  // caller does all of it: what is computed must not depend on which thread ran what.
  void run(int count, Task task, void* context);

  template <class F>
  void run(int count, F& f) {
    run(
        count, [](void* c, int i, int n) { (*static_cast<F*>(c))(i, n); }, &f);
  }

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

 private:
  struct Worker;
  ThreadPool() = default;
  void grow(int workers);
  static void serve(Worker& w);
  static void after_fork_in_child();

  std::atomic_flag busy_;
  std::vector<Worker*> workers_;  // never freed: their threads run until the process ends
};

// GALLOP_NUM_THREADS, else OMP_NUM_THREADS, else the CPUs this process may use.
int default_threads();

}  // namespace gallop::cpu
