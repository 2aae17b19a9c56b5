// SPDX-License-Identifier: MIT
#include "cuda/timing.h"

#include <chrono>

#include "cuda/runtime.h"

namespace gallop::cuda {

struct Stream::Impl {
  int device;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
};

Stream::Stream(int device, Priority priority) : impl_(new Impl{device}) {
  const DeviceScope scope(device);
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "making a stream");
  const int middle = (least + greatest) / 2;
  check(cudaStreamCreateWithPriority(&impl_->stream, cudaStreamNonBlocking,
                                     priority == Priority::high  ? greatest
                                     : priority == Priority::low ? least
                                                                 : middle),
        "making a stream");
  check(cudaEventCreate(&impl_->begin), "making an event");
  check(cudaEventCreate(&impl_->end), "making an event");
}

Stream::~Stream() {
  cudaEventDestroy(impl_->begin);
  cudaEventDestroy(impl_->end);
  cudaStreamDestroy(impl_->stream);
}

void* Stream::handle() const { return impl_->stream; }

Stream::Times Stream::time(const std::function<void()>& work) {
  const DeviceScope scope(impl_->device);
  using Clock = std::chrono::steady_clock;
  check(cudaEventRecord(impl_->begin, impl_->stream), "timing");
  const auto start = Clock::now();
  work();
  const std::chrono::duration<double> host = Clock::now() - start;
  check(cudaEventRecord(impl_->end, impl_->stream), "timing");
  check(cudaEventSynchronize(impl_->end), "waiting for the device");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, impl_->begin, impl_->end), "timing");
  return {ms * 1e-3, host.count()};
}

void Stream::copy(void* to, const void* from, size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, impl_->stream), "copying");
}

void Stream::wait() { check(cudaStreamSynchronize(impl_->stream), "waiting for the device"); }

struct Graph::Impl {
  cudaStream_t stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
};

Graph::Graph(Stream& stream, const std::function<void()>& work)
    : impl_(new Impl{static_cast<cudaStream_t>(stream.handle())}) {
  check(cudaStreamBeginCapture(impl_->stream, cudaStreamCaptureModeGlobal), "capturing a graph");
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(impl_->stream, &impl_->graph);
    cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(impl_->stream, &impl_->graph), "capturing a graph");
  check(cudaGraphInstantiate(&impl_->exec, impl_->graph, 0), "making a graph");
}

Graph::~Graph() {
  cudaGraphExecDestroy(impl_->exec);
  cudaGraphDestroy(impl_->graph);
}

void Graph::launch() { check(cudaGraphLaunch(impl_->exec, impl_->stream), "launching a graph"); }

int Graph::nodes() const {
  size_t n = 0;
  check(cudaGraphGetNodes(impl_->graph, nullptr, &n), "counting a graph's nodes");
  return static_cast<int>(n);
}

size_t l2_bytes(int device) {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "asking for the L2 cache");
  return static_cast<size_t>(bytes);
}

namespace {
struct DriverMemory {
  size_t free = 0, total = 0;
};
DriverMemory driver_memory(int device) {
  const DeviceScope scope(device);
  DriverMemory m;
  check(cudaMemGetInfo(&m.free, &m.total), "asking for the memory's size");
  return m;
}
}  // namespace

int64_t memory_bytes(int device) { return static_cast<int64_t>(driver_memory(device).total); }
int64_t free_bytes(int device) { return static_cast<int64_t>(driver_memory(device).free); }

std::string pci_bus_id(int device) {
  char text[32] = {};
  check(cudaDeviceGetPCIBusId(text, sizeof text, device), "asking for the PCI bus");
  return text;
}

}  // namespace gallop::cuda
