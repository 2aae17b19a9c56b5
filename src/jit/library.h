// SPDX-License-Identifier: MIT
// Code that was compiled at run time, in this process.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace gallop::jit {

// The function `symbol` of a translation unit, compiled, from the cache, or from memory. What is
// loaded stays. Throws what the compiler says of the user's file.
void* load_function(const std::string& text, const std::vector<std::string>& flags,
                    const char* symbol);

// What this thread has spent on getting code so far.
struct Spent {
  double seconds = 0;
  int compiled = 0, from_cache = 0;
};
Spent spent();

// For measurements: within such a scope, this thread looks nowhere for what was compiled before, or
// only on disk.
class Forgetting {
 public:
  enum What { everything, memory };
  explicit Forgetting(What what);
  ~Forgetting();
  Forgetting(const Forgetting&) = delete;
  Forgetting& operator=(const Forgetting&) = delete;

 private:
  int before_;
};

bool looks_in_memory();
bool looks_on_disk();
void add_spent(double seconds, bool compiled);

// Runs tasks that get code, on as many threads as there are CPUs. What they spend, this thread has:
// the time until the last has ended. Throws what the first of those that fail throws.
void in_parallel(const std::vector<std::function<void()>>& tasks);

}  // namespace gallop::jit
