// SPDX-License-Identifier: MIT
#include "gpt/cuda/sdpa.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>

#include "cuda/memory.h"
#include "cuda/runtime.h"
#include "gallop/error.h"
#include "gpt/cuda/cudnn.h"

namespace gallop::cuda {
namespace {

using cudnn::Dims;
using cudnn::Graph;
using cudnn::Tensor;

enum Id : int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kStats,
  kDo,
  kDq,
  kDk,
  kDv,
  kRowSums,
  kDqSums,
  kScale,
  kNothing,
  kOne
};

// Before this one, backward needs lengths of its own in memory unless they fit its tiles.
constexpr size_t kAnyTime = 91600;

size_t padded(size_t bytes) { return (bytes + 255) / 256 * 256; }

size_t row_sums_bytes(const SdpaShape& s) {
  return padded(static_cast<size_t>(s.batch * s.heads * s.time) * sizeof(float));
}

size_t dq_sums_bytes(const SdpaShape& s) {
  if (s.deterministic) return 0;
  return padded(static_cast<size_t>(s.batch * s.heads * s.time * s.width) * sizeof(float));
}

cudnnDataType_t type_of(const SdpaShape& s) {
  return s.bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

// Rows are time steps, columns a head's elements.
Tensor rows(Graph& g, const SdpaShape& s, int64_t id, int64_t row_stride) {
  return g.memory(id, type_of(s), {s.batch, s.heads, s.time, s.width},
                  {s.time * row_stride, s.width, row_stride, 1});
}

Tensor columns(Graph& g, const SdpaShape& s, int64_t id, int64_t row_stride) {
  return g.memory(id, type_of(s), {s.batch, s.heads, s.width, s.time},
                  {s.time * row_stride, s.width, 1, row_stride});
}

Tensor one_each(Graph& g, const SdpaShape& s, int64_t id) {
  return g.memory(id, CUDNN_DATA_FLOAT, {s.batch, s.heads, s.time, 1},
                  {s.heads * s.time, s.time, 1, 1});
}

Tensor masked(Graph& g, const SdpaShape& s, const Tensor& scores) {
  if (!s.causal) return scores;
  return g.below_diagonal(scores, g.number(kNothing, -std::numeric_limits<float>::infinity()));
}

// cuDNN knows attention by these operations in this order.
void build_forward(Graph& g, const SdpaShape& s) {
  const Tensor q = rows(g, s, kQ, s.row_stride_qkv), k = columns(g, s, kK, s.row_stride_qkv),
               v = rows(g, s, kV, s.row_stride_qkv), o = rows(g, s, kO, s.row_stride_o),
               stats = one_each(g, s, kStats), scale = g.number(kScale, s.scale);
  const Tensor scores = masked(g, s, g.pointwise(CUDNN_POINTWISE_MUL, g.product(q, k), scale));
  const Tensor most = g.reduce(CUDNN_REDUCE_TENSOR_MAX, scores);
  const Tensor powers =
      g.pointwise(CUDNN_POINTWISE_EXP, g.pointwise(CUDNN_POINTWISE_SUB, scores, most));
  const Tensor sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, powers);
  const Tensor log = g.pointwise(CUDNN_POINTWISE_LOG, sum);
  g.pointwise(CUDNN_POINTWISE_ADD, most, &log, stats);
  g.product(g.pointwise(CUDNN_POINTWISE_DIV, powers, sum, type_of(s)), v, o);
}

void build_backward(Graph& g, const SdpaShape& s) {
  const Tensor q = rows(g, s, kQ, s.row_stride_qkv), k = columns(g, s, kK, s.row_stride_qkv),
               v = columns(g, s, kV, s.row_stride_qkv), o = rows(g, s, kO, s.row_stride_o),
               d_o = rows(g, s, kDo, s.row_stride_o), dq = rows(g, s, kDq, s.row_stride_qkv),
               dk = rows(g, s, kDk, s.row_stride_qkv), dv = rows(g, s, kDv, s.row_stride_qkv),
               stats = one_each(g, s, kStats), row_sums = one_each(g, s, kRowSums),
               scale = g.number(kScale, s.scale), one = g.number(kOne, 1);
  const cudnnDataType_t type = type_of(s);

  g.pointwise(CUDNN_POINTWISE_MUL,
              g.reduce(CUDNN_REDUCE_TENSOR_ADD, g.pointwise(CUDNN_POINTWISE_MUL, d_o, o)), &one,
              row_sums);

  const Tensor scores = g.pointwise(CUDNN_POINTWISE_MUL, g.product(q, k), scale);
  const Tensor p = g.pointwise(CUDNN_POINTWISE_EXP,
                               masked(g, s, g.pointwise(CUDNN_POINTWISE_SUB, scores, stats)));
  g.product(g.transpose(p, type), d_o, dv);

  const Tensor centered = g.pointwise(CUDNN_POINTWISE_SUB, g.product(d_o, v), row_sums);
  const Tensor ds =
      g.pointwise(CUDNN_POINTWISE_MUL, g.pointwise(CUDNN_POINTWISE_MUL, centered, p), scale);
  g.product(g.transpose(ds, type), q, dk);

  const Tensor k_rows = g.transpose(k, CUDNN_DATA_FLOAT);
  if (s.deterministic) {
    g.product(ds, k_rows, dq);
  } else {
    const Dims dims{s.batch, s.heads, s.time, s.width};
    const Tensor sums = g.memory(kDqSums, CUDNN_DATA_FLOAT, dims, cudnn::row_major(dims));
    g.product(ds, k_rows, sums);
    g.pointwise(CUDNN_POINTWISE_IDENTITY, sums, nullptr, dq);
  }
}

struct Way {
  Graph forward, backward;
  size_t workspace = 0;
  std::string refused;
};

void require_aligned(std::initializer_list<const void*> memory) {
  for (const void* p : memory) {
    if (reinterpret_cast<uintptr_t>(p) % 16 == 0) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("attention was given memory at {}, expected a multiple of 16", p));
  }
}

}  // namespace

struct Sdpa::Impl {
  explicit Impl(int index)
      : device(index), handle(index), properties(cudnn::device_properties(index)) {}

  Way& way(const SdpaShape& s) {
    const auto found = ways.find(s);
    if (found != ways.end()) return found->second;
    DeviceScope scope(device);
    Way& way = ways[s];
    way.refused = misfit(s);
    if (!way.refused.empty()) return way;
    try {
      build_forward(way.forward, s);
      way.forward.plan(properties);
      build_backward(way.backward, s);
      way.backward.plan(properties);
      way.workspace = std::max(way.forward.workspace_bytes(), row_sums_bytes(s) + dq_sums_bytes(s) +
                                                                  way.backward.workspace_bytes());
    } catch (const Error& e) {
      if (e.code() != ErrorCode::unsupported) {
        ways.erase(s);
        throw;
      }
      way.refused = fmt::format(
          "cuDNN {} has no attention over {} x {} heads of {} steps of width {} in {}: {}",
          cudnn::version_name(), s.batch, s.heads, s.time, s.width, s.bf16 ? "bf16" : "fp16",
          e.what());
    }
    return way;
  }

  Way& required(const SdpaShape& s) {
    Way& found = way(s);
    if (found.refused.empty()) return found;
    throw Error(ErrorCode::unsupported, found.refused);
  }

  static std::string misfit(const SdpaShape& s) {
    if (s.batch < 1 || s.heads < 1 || s.time < 1 || s.width < 1) {
      return fmt::format("attention over {} x {} heads of {} steps of width {} has nothing to do",
                         s.batch, s.heads, s.time, s.width);
    }
    if (s.width % 8 != 0 || s.row_stride_qkv % 8 != 0 || s.row_stride_o % 8 != 0) {
      return fmt::format(
          "attention has heads of width {} in rows of {} and {}, expected multiples of 8", s.width,
          s.row_stride_qkv, s.row_stride_o);
    }
    if (cudnn::version() < kAnyTime && s.time % 128 != 0) {
      return fmt::format("cuDNN {} has attention over multiples of 128 steps, not over {}",
                         cudnn::version_name(), s.time);
    }
    return "";
  }

  int device;
  cudnn::Handle handle;
  cudnn::Descriptor properties;
  std::map<SdpaShape, Way> ways;
};

Sdpa::Sdpa(int device) {
  require_device(device);
  impl_ = std::make_unique<Impl>(device);
}

Sdpa::~Sdpa() = default;

bool Sdpa::supports(const SdpaShape& s) { return impl_->way(s).refused.empty(); }

size_t Sdpa::workspace_bytes(const SdpaShape& s) { return impl_->required(s).workspace; }

std::string Sdpa::describe(const SdpaShape& s) {
  const Way& way = impl_->way(s);
  if (!way.refused.empty()) return way.refused;
  return fmt::format("cuDNN {}, forward engine {}, backward engine {}", cudnn::version_name(),
                     way.forward.engine(), way.backward.engine());
}

void Sdpa::forward(const SdpaShape& s, const void* q, const void* k, const void* v, void* o,
                   float* stats, void* workspace, void* stream) {
  const Way& way = impl_->required(s);
  require_aligned({q, k, v, o, stats});
  DeviceScope scope(impl_->device);
  impl_->handle.use(stream);
  way.forward.run(impl_->handle,
                  {{kQ, const_cast<void*>(q)},
                   {kK, const_cast<void*>(k)},
                   {kV, const_cast<void*>(v)},
                   {kO, o},
                   {kStats, stats}},
                  workspace);
}

void Sdpa::backward(const SdpaShape& s, const void* q, const void* k, const void* v, const void* o,
                    const void* d_o, const float* stats, void* dq, void* dk, void* dv,
                    void* workspace, void* stream) {
  const Way& way = impl_->required(s);
  require_aligned({q, k, v, o, d_o, stats, dq, dk, dv});
  DeviceScope scope(impl_->device);
  impl_->handle.use(stream);
  char* const row_sums = static_cast<char*>(workspace);
  char* const dq_sums = row_sums + row_sums_bytes(s);
  way.backward.run(impl_->handle,
                   {{kQ, const_cast<void*>(q)},
                    {kK, const_cast<void*>(k)},
                    {kV, const_cast<void*>(v)},
                    {kO, const_cast<void*>(o)},
                    {kDo, const_cast<void*>(d_o)},
                    {kStats, const_cast<float*>(stats)},
                    {kDq, dq},
                    {kDk, dk},
                    {kDv, dv},
                    {kRowSums, row_sums},
                    {kDqSums, s.deterministic ? nullptr : dq_sums}},
                   dq_sums + dq_sums_bytes(s));
}

}  // namespace gallop::cuda
