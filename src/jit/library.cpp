// SPDX-License-Identifier: MIT
#include "jit/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <thread>

#include "gallop/error.h"
#include "jit/cache.h"
#include "jit/compiler.h"
#include "jit/known.h"

namespace gallop::jit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNothing = 0;
thread_local int forgetting = kNothing;  // 1: memory, 2: everything
thread_local Spent total;

void* open_library(const std::string& path) { return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); }

// Bytes that cannot be kept on disk are loaded from a file that is gone at once.
void* load_bytes(const std::string& bytes) {
  char path[] = "/tmp/gallop-XXXXXX";
  const int fd = mkstemp(path);
  if (fd < 0) return nullptr;
  const bool written = write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  close(fd);
  void* handle = written ? open_library(path) : nullptr;
  unlink(path);
  return handle;
}

void* function_of(void* handle, const char* symbol) {
  void* function = handle == nullptr ? nullptr : dlsym(handle, symbol);
  if (function != nullptr) return function;
  const char* why = dlerror();
  throw Error(ErrorCode::unsupported, fmt::format("a rule that was compiled cannot be loaded: {}",
                                                  why == nullptr ? "it is empty" : why));
}

}  // namespace

bool looks_in_memory() { return forgetting == kNothing; }
bool looks_on_disk() { return forgetting < 2; }
Forgetting::Forgetting(What what) : before_(forgetting) { forgetting = what == everything ? 2 : 1; }
Forgetting::~Forgetting() { forgetting = before_; }

Spent spent() { return total; }
void add_spent(double seconds, bool compiled) {
  total.seconds += seconds;
  (compiled ? total.compiled : total.from_cache) += 1;
}

void in_parallel(const std::vector<std::function<void()>>& tasks) {
  const Clock::time_point begin = Clock::now();
  const size_t count = std::min<size_t>(tasks.size(), std::thread::hardware_concurrency());
  if (count < 2) {
    for (const auto& task : tasks) task();
    return;
  }
  std::vector<std::exception_ptr> errors(tasks.size());
  std::vector<Spent> each(count);
  std::atomic<size_t> next = 0;
  const auto work = [&, inherited = forgetting](size_t self) {
    forgetting = inherited;
    total = {};
    for (size_t i = next++; i < tasks.size(); i = next++) {
      try {
        tasks[i]();
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
    each[self] = total;
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) threads.emplace_back(work, i);
  for (std::thread& t : threads) t.join();
  for (const Spent& s : each) {
    total.compiled += s.compiled;
    total.from_cache += s.from_cache;
  }
  total.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  for (const std::exception_ptr& e : errors) {
    if (e != nullptr) std::rethrow_exception(e);
  }
}

void* load_function(const std::string& text, const std::vector<std::string>& flags,
                    const char* symbol) {
  static Known<void> loaded;
  const Clock::time_point begin = Clock::now();
  const Compiler& c = compiler();
  const std::string key =
      digest(fmt::format("{}\n{}\n{}", c.identity, fmt::join(flags, " "), text));
  return loaded.get(key, !looks_in_memory(), [&] {
    const Cache cache = Cache::of_user();
    const std::string name = key + ".so";
    void* handle = nullptr;
    if (looks_on_disk()) {
      if (looks_in_memory()) {
        // Another process may remove it in between; then dlopen finds nothing and it is compiled.
        if (const auto path = cache.find(name)) handle = open_library(*path);
      } else if (const auto bytes = cache.read(name)) {
        handle = load_bytes(*bytes);  // not what is loaded from that path already
      }
    }
    const bool compiled = handle == nullptr;
    if (compiled) {
      const std::string bytes = compile_library(c, flags, text);
      if (const auto path = cache.keep(name, bytes)) handle = open_library(*path);
      if (handle == nullptr) handle = load_bytes(bytes);
    }
    void* function = function_of(handle, symbol);
    add_spent(std::chrono::duration<double>(Clock::now() - begin).count(), compiled);
    return function;
  });
}

}  // namespace gallop::jit
