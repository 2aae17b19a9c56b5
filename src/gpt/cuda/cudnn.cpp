// SPDX-License-Identifier: MIT
#include "gpt/cuda/cudnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "cuda/runtime.h"
#include "cuda/shared_library.h"
#include "gallop/error.h"

namespace gallop::cuda::cudnn {
namespace {

// The two before it have known faults in attention.
constexpr size_t kOldest = 91002;

std::string name_of(size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

#define GALLOP_CUDNN(name) decltype(&::cudnn##name) name = nullptr

struct Library {
  GALLOP_CUDNN(GetVersion);
  GALLOP_CUDNN(GetErrorString);
  GALLOP_CUDNN(GetLastErrorString);
  GALLOP_CUDNN(Create);
  GALLOP_CUDNN(Destroy);
  GALLOP_CUDNN(SetStream);
  GALLOP_CUDNN(BackendCreateDescriptor);
  GALLOP_CUDNN(BackendDestroyDescriptor);
  GALLOP_CUDNN(BackendFinalize);
  GALLOP_CUDNN(BackendSetAttribute);
  GALLOP_CUDNN(BackendGetAttribute);
  GALLOP_CUDNN(BackendExecute);
  size_t version = 0;

  Library() {
    const gallop::cuda::SharedLibrary library(
        {fmt::format("libcudnn.so.{}", CUDNN_MAJOR)},
        "which fused attention needs (LD_LIBRARY_PATH says where it lies)");
    const auto load = [&](auto*& to, const char* symbol) { library.load(to, symbol); };
    load(GetVersion, "cudnnGetVersion");
    load(GetErrorString, "cudnnGetErrorString");
    load(GetLastErrorString, "cudnnGetLastErrorString");
    load(Create, "cudnnCreate");
    load(Destroy, "cudnnDestroy");
    load(SetStream, "cudnnSetStream");
    load(BackendCreateDescriptor, "cudnnBackendCreateDescriptor");
    load(BackendDestroyDescriptor, "cudnnBackendDestroyDescriptor");
    load(BackendFinalize, "cudnnBackendFinalize");
    load(BackendSetAttribute, "cudnnBackendSetAttribute");
    load(BackendGetAttribute, "cudnnBackendGetAttribute");
    load(BackendExecute, "cudnnBackendExecute");
    version = GetVersion();
    if (version < kOldest) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("{} is cuDNN {}, fused attention needs {}", library.name(),
                              name_of(version), name_of(kOldest)));
    }
  }
};
#undef GALLOP_CUDNN

const Library& library() {
  static const Library* const loaded = new Library;
  return *loaded;
}

void check(cudnnStatus_t status, const std::string& doing) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char more[512] = "";
  library().GetLastErrorString(more, sizeof more);
  // What it was asked for is at fault, or it cannot do that.
  const bool refused = status >= CUDNN_STATUS_BAD_PARAM && status < CUDNN_STATUS_INTERNAL_ERROR;
  throw Error(refused ? ErrorCode::unsupported : ErrorCode::device,
              fmt::format("{}: cuDNN {} says '{}{}{}'", doing, version_name(),
                          library().GetErrorString(status), *more ? ": " : "", more));
}

template <class T>
std::vector<T> values_of(cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t most) {
  std::vector<T> values(static_cast<size_t>(most));
  int64_t count = 0;
  check(library().BackendGetAttribute(from, name, type, most, &count, values.data()),
        "asking about an engine");
  values.resize(static_cast<size_t>(std::min(count, most)));
  return values;
}

// An engine's number and its settings, for records.
std::string describe(const Descriptor& config) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t filled = engine.get();
  int64_t count = 0;
  check(library().BackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &filled),
        "asking about an engine");
  std::string name = fmt::format(
      "{}", values_of<int64_t>(filled, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1).at(0));
  std::vector<Descriptor> knobs;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i) {
    knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    handles.push_back(knobs.back().get());
  }
  check(library().BackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                      static_cast<int64_t>(handles.size()), &count, handles.data()),
        "asking about an engine");
  for (int64_t i = 0; i < count; ++i) {
    const cudnnBackendDescriptor_t knob = handles[static_cast<size_t>(i)];
    name += fmt::format(
        " k{}={}",
        static_cast<int>(values_of<cudnnBackendKnobType_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                                           CUDNN_TYPE_KNOB_TYPE, 1)
                             .at(0)),
        values_of<int64_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1).at(0));
  }
  return name;
}

}  // namespace

size_t version() { return library().version; }

std::string version_name() { return name_of(version()); }

Handle::Handle(int device) {
  const Library& loaded = library();
  DeviceScope scope(device);
  check(loaded.Create(&handle_), "starting cuDNN");
}

Handle::~Handle() { library().Destroy(handle_); }

void Handle::use(void* stream) {
  check(library().SetStream(handle_, static_cast<cudaStream_t>(stream)), "giving cuDNN a stream");
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check(library().BackendCreateDescriptor(type, &handle_), "describing attention");
}

Descriptor::~Descriptor() {
  if (handle_ != nullptr) library().BackendDestroyDescriptor(handle_);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     int64_t count, const void* values) {
  check(library().BackendSetAttribute(handle_, name, type, count, values),
        fmt::format("describing attention (attribute {})", static_cast<int>(name)));
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void Descriptor::set(cudnnBackendAttributeName_t name, int64_t value) {
  set(name, CUDNN_TYPE_INT64, 1, &value);
}

void Descriptor::set(cudnnBackendAttributeName_t name, bool value) {
  set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

void Descriptor::finalize(const char* what) { check(library().BackendFinalize(handle_), what); }

Descriptor device_properties(int device) {
  Descriptor d(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  const int32_t id = device;
  d.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &id);
  d.finalize("describing a device to cuDNN");
  return d;
}

Dims row_major(const Dims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

Descriptor& Graph::keep(Descriptor d) { return kept_.emplace_back(std::move(d)); }

Tensor Graph::tensor(int64_t id, cudnnDataType_t type, const Dims& dims, const Dims& strides,
                     bool made, bool by_value) {
  Descriptor& d = keep(Descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data());
  d.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16});
  d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, made);
  d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, by_value);
  d.finalize("describing a tensor of attention");
  return {d.get(), dims, strides};
}

Tensor Graph::memory(int64_t id, cudnnDataType_t type, const Dims& dims, const Dims& strides) {
  return tensor(id, type, dims, strides, false, false);
}

Tensor Graph::number(int64_t id, float value) {
  numbers_.emplace_back(id, value);
  return tensor(id, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
}

Tensor Graph::made(cudnnDataType_t type, const Dims& dims) {
  return tensor(next_id_++, type, dims, row_major(dims), true, false);
}

Tensor Graph::product(const Tensor& a, const Tensor& b) {
  const Tensor to = made(CUDNN_DATA_FLOAT, {a.dims[0], a.dims[1], a.dims[2], b.dims[3]});
  product(a, b, to);
  return to;
}

void Graph::product(const Tensor& a, const Tensor& b, const Tensor& to) {
  Descriptor& how = keep(Descriptor(CUDNN_BACKEND_MATMUL_DESCRIPTOR));
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  how.finalize("describing a product of attention");
  Descriptor& d = keep(Descriptor(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR));
  d.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, to.descriptor);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how.get());
  d.finalize("describing a product of attention");
  operations_.push_back(d.get());
}

void Graph::add_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t math, int64_t axis,
                          const Tensor& x, const Tensor* b, const Tensor* t, const Tensor& to) {
  Descriptor& how = keep(Descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, math);
  if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
  how.finalize("describing a formula of attention");
  Descriptor& d = keep(Descriptor(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how.get());
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.descriptor);
  if (b != nullptr) d.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->descriptor);
  if (t != nullptr) d.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t->descriptor);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to.descriptor);
  d.finalize("describing a formula of attention");
  operations_.push_back(d.get());
}

void Graph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor* b,
                      const Tensor& to) {
  add_pointwise(mode, CUDNN_DATA_FLOAT, -1, x, b, nullptr, to);
}

Tensor Graph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x) {
  const Tensor to = made(CUDNN_DATA_FLOAT, x.dims);
  pointwise(mode, x, nullptr, to);
  return to;
}

Tensor Graph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor& b,
                        cudnnDataType_t type) {
  const Tensor to = made(type, x.dims);
  pointwise(mode, x, &b, to);
  return to;
}

Tensor Graph::reduce(cudnnReduceTensorOp_t by, const Tensor& x) {
  const Tensor to = made(CUDNN_DATA_FLOAT, {x.dims[0], x.dims[1], x.dims[2], 1});
  Descriptor& how = keep(Descriptor(CUDNN_BACKEND_REDUCTION_DESCRIPTOR));
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &by);
  how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  how.finalize("describing a sum of attention");
  Descriptor& d = keep(Descriptor(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR));
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to.descriptor);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how.get());
  d.finalize("describing a sum of attention");
  operations_.push_back(d.get());
  return to;
}

Tensor Graph::transpose(const Tensor& x, cudnnDataType_t type) {
  const Dims dims{x.dims[0], x.dims[1], x.dims[3], x.dims[2]};
  Dims strides = x.strides;
  std::swap(strides[2], strides[3]);
  const Tensor to = tensor(next_id_++, type, dims, strides, true, false);
  Descriptor& d = keep(Descriptor(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR));
  d.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.descriptor);
  d.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to.descriptor);
  d.finalize("describing a transposed matrix of attention");
  operations_.push_back(d.get());
  return to;
}

Tensor Graph::index(const Tensor& x, int64_t axis) {
  const Tensor to = made(CUDNN_DATA_INT32, x.dims);
  add_pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis, x, nullptr, nullptr, to);
  return to;
}

Tensor Graph::below_diagonal(const Tensor& x, const Tensor& otherwise) {
  const Tensor row = index(x, 2), column = index(x, 3);
  const Tensor seen = made(CUDNN_DATA_BOOLEAN, x.dims);
  add_pointwise(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, row, &column, nullptr, seen);
  const Tensor to = made(CUDNN_DATA_FLOAT, x.dims);
  add_pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, x, &otherwise, &seen, to);
  return to;
}

void Graph::plan(const Descriptor& device) {
  Descriptor& graph = keep(Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<int64_t>(operations_.size()), operations_.data());
  graph.finalize("describing attention");

  std::string why = "no engine takes it";
  for (cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    Descriptor ask(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    ask.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.get());
    ask.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    ask.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device.get());
    int64_t count = 0;
    try {
      ask.finalize("asking how to do attention");
      check(library().BackendGetAttribute(ask.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
            "asking how to do attention");
    } catch (const Error& e) {
      if (e.code() != ErrorCode::unsupported) throw;
      why = e.what();
      continue;
    }
    std::vector<Descriptor> configs;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (int64_t i = 0; i < count; ++i) {
      configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      handles.push_back(configs.back().get());
    }
    check(
        library().BackendGetAttribute(ask.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count, handles.data()),
        "asking how to do attention");
    for (int64_t i = 0; i < count; ++i) {
      Descriptor& config = configs[static_cast<size_t>(i)];
      try {
        auto plan = std::make_unique<Descriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        plan->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config.get());
        plan->set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device.get());
        plan->finalize("planning attention");
        workspace_bytes_ = static_cast<size_t>(
            values_of<int64_t>(plan->get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                               CUDNN_TYPE_INT64, 1)
                .at(0));
        engine_ = describe(config);
        plan_ = std::move(plan);
        keep(std::move(config));
        return;
      } catch (const Error& e) {
        if (e.code() != ErrorCode::unsupported) throw;
        why = e.what();
      }
    }
  }
  throw Error(ErrorCode::unsupported, why);
}

void Graph::run(const Handle& handle, std::initializer_list<std::pair<int64_t, void*>> memory,
                void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
  for (const auto& [id, pointer] : memory) {
    if (pointer == nullptr) continue;
    ids.push_back(id);
    pointers.push_back(pointer);
  }
  for (const auto& [id, value] : numbers_) {
    ids.push_back(id);
    pointers.push_back(const_cast<float*>(&value));
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const int64_t count = static_cast<int64_t>(ids.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize("giving attention its memory");
  check(library().BackendExecute(handle.get(), plan_->get(), pack.get()), "running attention");
}

}  // namespace gallop::cuda::cudnn
