// SPDX-License-Identifier: MIT
#include "jit/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>

#include "gallop/error.h"
#include "jit/cache.h"
#include "jit/compiler.h"

namespace gallop::jit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNothing = 0;
thread_local int forgetting = kNothing;  // 1: memory, 2: everything
thread_local Spent total;

// Bytes that cannot be kept on disk are loaded from a file that is gone at once.
void* load_bytes(const std::string& bytes) {
  char path[] = "/tmp/gallop-XXXXXX";
  const int fd = mkstemp(path);
  if (fd < 0) return nullptr;
  const bool written = write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  close(fd);
  void* handle = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
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

void* load_function(const std::string& text, const std::vector<std::string>& flags,
                    const char* symbol) {
  static std::mutex mutex;
  static std::map<std::string, void*> loaded;
  const Clock::time_point begin = Clock::now();
  const Compiler& c = compiler();
  const std::string key =
      digest(fmt::format("{}\n{}\n{}", c.identity, fmt::join(flags, " "), text));
  const std::lock_guard lock(mutex);
  if (const auto it = loaded.find(key); it != loaded.end() && looks_in_memory()) return it->second;

  const Cache cache = Cache::of_user();
  const std::string name = key + ".so";
  void* handle = nullptr;
  if (looks_on_disk()) {
    // Another process may remove it in between; then dlopen finds nothing and it is compiled.
    if (looks_in_memory()) {
      if (const auto path = cache.find(name)) handle = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
    } else if (const auto bytes = cache.read(name)) {
      handle = load_bytes(*bytes);  // not what is loaded from that path already
    }
  }
  const bool compiled = handle == nullptr;
  if (compiled) {
    const std::string bytes = compile_library(c, flags, text);
    const std::optional<std::string> path = cache.keep(name, bytes);
    handle = path ? dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (handle == nullptr) handle = load_bytes(bytes);
  }
  void* function = function_of(handle, symbol);
  loaded.insert_or_assign(key, function);
  add_spent(std::chrono::duration<double>(Clock::now() - begin).count(), compiled);
  return function;
}

}  // namespace gallop::jit
