// SPDX-License-Identifier: MIT
// What a bench needs of a GPU, without CUDA's headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace gallop::cuda {

// A stream with a stopwatch on it.
class Stream {
 public:
  enum class Priority { high, normal, low };  // who goes first where there is a choice
  explicit Stream(int device, Priority priority = Priority::normal);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void* handle() const;  // cudaStream_t
  struct Times {
    double device_s;  // between the first and the last thing that `work` put on the stream
    double host_s;    // until `work` returned
  };
  Times time(const std::function<void()>& work);
  void copy(void* to, const void* from, size_t bytes);  // on the device
  void wait();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Work captured from a stream once, to be launched again and again.
class Graph {
 public:
  Graph(Stream& stream, const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch();
  int nodes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

size_t l2_bytes(int device);
int64_t memory_bytes(int device);  // all of it
int64_t free_bytes(int device);    // as the driver says
std::string pci_bus_id(int device);

}  // namespace gallop::cuda
