// SPDX-License-Identifier: MIT
// Streams do at once what they are given; graphs hold it as functions. What CUDA forbids while a
// stream is captured is refused here too.
#include "cuda_emulator/cuda_runtime_api.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "cuda_emulator/block.h"
#include "cuda_emulator/stream.h"

struct EmulatedGraph {
  std::vector<std::function<void()>> nodes;
};
// A stream that waits for another one does its work as late as it may, when somebody waits for it:
// what is overwritten too early, or freed, shows.
struct EmulatedStream {
  EmulatedGraph* capture = nullptr;
  EmulatedStream* behind = nullptr;  // whom it waited for
  size_t joined = 0;                 // which capture it has become part of
  std::deque<std::function<void()>> waiting;
  size_t done = 0;  // of what was ever put on it while behind
};
struct EmulatedEvent {
  std::chrono::steady_clock::time_point at;
  EmulatedStream* stream = nullptr;  // it was recorded on
  size_t position = 0;               // behind so much of its work
  size_t joined = 0;                 // which capture the stream was part of
};

namespace gallop::emulator {
namespace {

constexpr size_t kMemory = size_t{4} << 30, kAlignment = 256;

struct Range {
  size_t bytes;
  cudaMemoryType type;
};

struct Device {
  std::mutex mutex;
  std::map<uintptr_t, Range> memory;
  size_t used = 0;
  int captures = 0;
  size_t captured = 0;  // ever
  std::map<const void*, Bind> kernels;
};

Device& device() {
  static auto* const one = new Device;
  return *one;
}

bool capturing() {
  const std::lock_guard lock(device().mutex);
  return device().captures > 0;
}

cudaError_t allocate(void** memory, size_t bytes, cudaMemoryType type) {
  if (capturing()) return cudaErrorStreamCaptureUnsupported;
  const std::lock_guard lock(device().mutex);
  if (bytes > kMemory - device().used) return cudaErrorMemoryAllocation;
  *memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (*memory == nullptr) return bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
  device().used += bytes;
  device().memory[reinterpret_cast<uintptr_t>(*memory)] = {bytes, type};
  return cudaSuccess;
}

cudaError_t launch(const void* kernel, dim3 grid, dim3 block, void** arguments,
                   cudaStream_t stream) {
  if (grid.x * grid.y * grid.z == 0 || block.x * block.y > kMostThreads || block.z != 1) {
    return cudaErrorInvalidValue;
  }
  Bind bind = nullptr;
  {
    const std::lock_guard lock(device().mutex);
    const auto it = device().kernels.find(kernel);
    if (it == device().kernels.end()) return cudaErrorInvalidDeviceFunction;
    bind = it->second;
  }
  return put_on(stream,
                [grid, block, call = bind(kernel, arguments)] { run_blocks(grid, block, call); });
}

}  // namespace

cudaError_t put_on(cudaStream_t stream, std::function<void()> work) {
  if (stream != nullptr && stream->behind != nullptr) {
    stream->waiting.push_back(std::move(work));
    return cudaSuccess;
  }
  if (stream != nullptr && stream->capture != nullptr) {
    stream->capture->nodes.push_back(std::move(work));
  } else {
    if (stream == nullptr && capturing()) return cudaErrorStreamCaptureUnsupported;
    work();
  }
  return cudaSuccess;
}

// Does what lies before a position of a stream that is behind, on the stream that needs it.
static cudaError_t catch_up(EmulatedStream* stream, size_t position, EmulatedStream* on) {
  while (stream->done < position) {
    ++stream->done;
    const std::function<void()> work = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    if (const cudaError_t error = put_on(on, work); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

void announce(const void* kernel, Bind bind) {
  const std::lock_guard lock(device().mutex);
  device().kernels[kernel] = bind;
}

}  // namespace gallop::emulator

using namespace gallop::emulator;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidDeviceFunction:
      return "invalid device function";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorIllegalState:
      return "the operation cannot be performed in the present state";
    case cudaErrorCooperativeLaunchTooLarge:
      return "too many blocks in cooperative launch";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
  }
  return "unrecognized error code";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* which) { return *which = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int which) { return which == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  *value = which == cudaDevAttrMultiProcessorCount ? static_cast<int>(kMultiprocessors) : 1 << 20;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int) {
  std::snprintf(text, static_cast<size_t>(size), "none");
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return capturing() ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return allocate(memory, bytes, cudaMemoryTypeDevice);
}
cudaError_t cudaMallocManaged(void** memory, size_t bytes) {
  return allocate(memory, bytes, cudaMemoryTypeManaged);
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  const std::lock_guard lock(device().mutex);
  const auto it = device().memory.find(reinterpret_cast<uintptr_t>(memory));
  if (it == device().memory.end()) return cudaErrorInvalidValue;
  device().used -= it->second.bytes;
  device().memory.erase(it);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  if (capturing()) return cudaErrorStreamCaptureUnsupported;
  return *memory = std::malloc(bytes), cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) { return std::free(memory), cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard lock(device().mutex);
  *free = kMemory - device().used;
  *total = kMemory;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  const std::lock_guard lock(device().mutex);
  const auto address = reinterpret_cast<uintptr_t>(memory);
  auto it = device().memory.upper_bound(address);
  *attributes = {cudaMemoryTypeUnregistered, 0};
  if (it == device().memory.begin()) return cudaSuccess;
  --it;
  if (address <= it->first + it->second.bytes) attributes->type = it->second.type;
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  return cudaMemsetAsync(memory, value, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return put_on(stream, [=] {
    if (bytes > 0) std::memset(memory, value, bytes);
  });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return put_on(stream, [=] {
    if (bytes > 0) std::memmove(to, from, bytes);
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = new EmulatedStream, cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  EmulatedStream* other = event->stream;
  if (stream == nullptr) return cudaErrorInvalidValue;
  if (other == nullptr || other == stream) return cudaSuccess;
  EmulatedStream* on = stream;
  while (on->behind != nullptr) on = on->behind;
  if (on->capture != nullptr && stream->joined == on->joined && event->joined != on->joined) {
    return cudaErrorStreamCaptureIsolation;
  }
  stream->joined = event->joined;
  if (other->behind != nullptr) return catch_up(other, event->position, on);
  stream->behind = other;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != nullptr && stream->behind != nullptr) {
    EmulatedStream* other = stream->behind;
    if (other->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
    return catch_up(stream, stream->done + stream->waiting.size(), other);
  }
  return stream != nullptr && stream->capture != nullptr ? cudaErrorStreamCaptureUnsupported
                                                         : cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream != nullptr && stream->capture != nullptr ? cudaStreamCaptureStatusActive
                                                            : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  stream->capture = new EmulatedGraph;
  const std::lock_guard lock(device().mutex);
  stream->joined = ++device().captured;
  ++device().captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (stream == nullptr || stream->capture == nullptr) return cudaErrorIllegalState;
  *graph = stream->capture;
  stream->capture = nullptr;
  stream->joined = 0;
  const std::lock_guard lock(device().mutex);
  --device().captures;
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return *event = new EmulatedEvent{}, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return put_on(stream, [event] { event->at = std::chrono::steady_clock::now(); });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream;
  event->joined = stream == nullptr ? 0 : stream->joined;
  if (stream != nullptr) event->position = stream->done + stream->waiting.size();
  return event->at = std::chrono::steady_clock::now(), cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  *ms = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return *exec = new EmulatedGraph(*graph), cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  for (const auto& node : exec->nodes) {
    if (const cudaError_t error = put_on(stream, node); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  return *count = graph->nodes.size(), cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  return *blocks = 1, cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int value) {
  return static_cast<size_t>(value) > kSharedBytes ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t stream) {
  if (shared_bytes > kSharedBytes) return cudaErrorInvalidValue;
  return launch(kernel, grid, block, arguments, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                        size_t, cudaStream_t stream) {
  if (grid.x * grid.y * grid.z > kBlocksAtOnce) return cudaErrorCooperativeLaunchTooLarge;
  return launch(kernel, grid, block, arguments, stream);
}
