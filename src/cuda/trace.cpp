// SPDX-License-Identifier: MIT
#include "cuda/trace.h"

#include <cupti.h>
#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "cuda/runtime.h"
#include "cuda/shared_library.h"
#include "gallop/error.h"

namespace gallop::cuda {
namespace {

struct Library {
  decltype(&::cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&::cuptiActivityEnable) enable = nullptr;
  decltype(&::cuptiActivityDisable) disable = nullptr;
  decltype(&::cuptiActivityFlushAll) flush = nullptr;
  decltype(&::cuptiActivityGetNextRecord) next = nullptr;
  decltype(&::cuptiGetTimestamp) timestamp = nullptr;
  decltype(&::cuptiGetResultString) describe = nullptr;

  Library() {
    const std::string name = fmt::format("libcupti.so.{}", CUPTI_API_VERSION / 10000);
    const SharedLibrary library({name, "/usr/local/cuda/extras/CUPTI/lib64/" + name},
                                "which tracing a GPU needs");
    const auto load = [&](auto*& to, const char* symbol) { library.load(to, symbol); };
    load(register_callbacks, "cuptiActivityRegisterCallbacks");
    load(enable, "cuptiActivityEnable");
    load(disable, "cuptiActivityDisable");
    load(flush, "cuptiActivityFlushAll");
    load(next, "cuptiActivityGetNextRecord");
    load(timestamp, "cuptiGetTimestamp");
    load(describe, "cuptiGetResultString");
  }
};

const Library& library() {
  static const Library* const loaded = new Library;
  return *loaded;
}

void check_cupti(CUptiResult status, const char* doing) {
  if (status == CUPTI_SUCCESS) return;
  const char* why = "unknown";
  library().describe(status, &why);
  throw Error(ErrorCode::unsupported, fmt::format("{}: CUPTI says {}", doing, why));
}

struct Records {
  std::mutex mutex;
  std::vector<Activity> all;
  std::vector<uint32_t> calls;                     // that launched each of them
  std::unordered_map<uint32_t, int64_t> launched;  // when a call was made
};

Records& records() {
  static auto* const one = new Records;
  return *one;
}

std::string readable(const char* name) {
  if (name == nullptr) return "kernel";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? plain.get() : name;
}

constexpr size_t kBuffer = size_t{1} << 20, kAlignment = 8;

void give_buffer(uint8_t** buffer, size_t* size, size_t* most) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBuffer));
  *size = *buffer == nullptr ? 0 : kBuffer;
  *most = 0;
}

template <class R>
void keep(const CUpti_Activity* record, std::string name) {
  const auto* r = reinterpret_cast<const R*>(record);
  records().all.push_back({std::move(name), static_cast<int64_t>(r->start),
                           static_cast<int64_t>(r->end), r->streamId, r->graphNodeId});
  records().calls.push_back(r->correlationId);
}

// The runtime's calls make calls of the driver with the same number.
void keep_call(const CUpti_Activity* record) {
  const auto* call = reinterpret_cast<const CUpti_ActivityAPI*>(record);
  const auto at = static_cast<int64_t>(call->start);
  const auto [it, first] = records().launched.try_emplace(call->correlationId, at);
  if (!first) it->second = std::min(it->second, at);
}

void take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(records().mutex);
  CUpti_Activity* record = nullptr;
  while (library().next(buffer, valid, &record) == CUPTI_SUCCESS) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
        keep<CUpti_ActivityKernel10>(record, readable(kernel->name));
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        keep<CUpti_ActivityMemcpy6>(record, "copy");
        break;
      case CUPTI_ACTIVITY_KIND_MEMSET:
        keep<CUpti_ActivityMemset4>(record, "set");
        break;
      case CUPTI_ACTIVITY_KIND_RUNTIME:
      case CUPTI_ACTIVITY_KIND_DRIVER:
        keep_call(record);
        break;
      default:
        break;
    }
  }
  std::free(buffer);
}

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET,
                                         CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER};

}  // namespace

void start_trace() {
  check_cupti(library().register_callbacks(give_buffer, take_buffer), "tracing");
  for (CUpti_ActivityKind kind : kKinds) check_cupti(library().enable(kind), "tracing");
}

std::vector<Activity> stop_trace() {
  check(cudaDeviceSynchronize(), "waiting for the device");
  check_cupti(library().flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "tracing");
  for (CUpti_ActivityKind kind : kKinds) check_cupti(library().disable(kind), "tracing");
  Records& r = records();
  const std::lock_guard lock(r.mutex);
  std::vector<Activity> all = std::move(r.all);
  for (size_t i = 0; i < all.size(); ++i) {
    const auto call = r.launched.find(r.calls[i]);
    if (call != r.launched.end()) all[i].launched_ns = call->second;
  }
  r.all.clear();
  r.calls.clear();
  r.launched.clear();
  std::stable_sort(all.begin(), all.end(),
                   [](const Activity& a, const Activity& b) { return a.begin_ns < b.begin_ns; });
  return all;
}

int64_t trace_now() {
  uint64_t now = 0;
  check_cupti(library().timestamp(&now), "tracing");
  return static_cast<int64_t>(now);
}

}  // namespace gallop::cuda
