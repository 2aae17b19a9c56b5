// SPDX-License-Identifier: MIT
// cuDNN's backend API as far as attention needs it. The library is loaded when first needed.
#pragma once

#include <cudnn_graph.h>

#include <array>
#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gallop::cuda::cudnn {

// Throws ErrorCode::unsupported when there is no cuDNN, or one too old.
size_t version();  // 91900 is 9.19.0
std::string version_name();

class Handle {
 public:
  explicit Handle(int device);
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  cudnnHandle_t get() const { return handle_; }
  void use(void* stream);

 private:
  cudnnHandle_t handle_ = nullptr;
};

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  cudnnBackendDescriptor_t get() const { return handle_; }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
  void set(cudnnBackendAttributeName_t name, int64_t value);
  void set(cudnnBackendAttributeName_t name, bool value);
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  void finalize(const char* what);

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

Descriptor device_properties(int device);  // what plans are made for

using Dims = std::array<int64_t, 4>;  // batch, head, row, column
Dims row_major(const Dims& dims);

struct Tensor {
  cudnnBackendDescriptor_t descriptor;
  Dims dims, strides;
};

// Operations that cuDNN does in one go. Ids of tensors in memory are the caller's, below kOwnIds.
class Graph {
 public:
  static constexpr int64_t kOwnIds = 1000;

  Tensor memory(int64_t id, cudnnDataType_t type, const Dims& dims, const Dims& strides);
  Tensor number(int64_t id, float value);
  // These return a tensor that is never in memory, or write to the one given.
  Tensor product(const Tensor& a, const Tensor& b);
  void product(const Tensor& a, const Tensor& b, const Tensor& to);
  Tensor pointwise(cudnnPointwiseMode_t mode, const Tensor& x);
  Tensor pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& b,
                   cudnnDataType_t type = CUDNN_DATA_FLOAT);
  void pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor* b, const Tensor& to);
  Tensor reduce(cudnnReduceTensorOp_t by, const Tensor& x);  // along columns
  Tensor transpose(const Tensor& x, cudnnDataType_t type);
  Tensor below_diagonal(const Tensor& x, const Tensor& otherwise);  // and on it

  // Always the first of cuDNN's answers that works, never the fastest of some tried: the same bits
  // on every run. Throws ErrorCode::unsupported when there is none.
  void plan(const Descriptor& device);
  size_t workspace_bytes() const { return workspace_bytes_; }
  const std::string& engine() const { return engine_; }
  // Memory that is null is left out.
  void run(const Handle& handle, std::initializer_list<std::pair<int64_t, void*>> memory,
           void* workspace) const;

 private:
  Tensor tensor(int64_t id, cudnnDataType_t type, const Dims& dims, const Dims& strides, bool made,
                bool by_value);
  Tensor made(cudnnDataType_t type, const Dims& dims);
  Descriptor& keep(Descriptor d);
  Tensor index(const Tensor& x, int64_t axis);
  void add_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t math, int64_t axis, const Tensor& x,
                     const Tensor* b, const Tensor* t, const Tensor& to);

  std::deque<Descriptor> kept_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::deque<std::pair<int64_t, float>> numbers_;
  int64_t next_id_ = kOwnIds;
  std::unique_ptr<Descriptor> plan_;
  size_t workspace_bytes_ = 0;
  std::string engine_;
};

}  // namespace gallop::cuda::cudnn
