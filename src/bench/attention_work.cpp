// SPDX-License-Identifier: MIT
#include "bench/attention_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "bench/train_bench.h"
#include "core/convert.h"
#include "gallop/error.h"

namespace gallop::bench {
namespace {

constexpr double kMb = 1 << 20;
constexpr double kShare = 0.95;  // of what is free: others want some too
constexpr int64_t kAtATime = 1 << 20;

DType type_of(gpt::Compute c) {
  if (c == gpt::Compute::bf16) return DType::bf16;
  if (c == gpt::Compute::fp16) return DType::f16;
  return c == gpt::Compute::fp64 ? DType::f64 : DType::f32;
}

double bytes_of(const gpt::Extent& e) {
  return static_cast<double>(e.rows) * static_cast<double>(e.columns) *
         static_cast<double>(size_of(e.type));
}

void require_memory(gpt::Ops& ops, const AttentionCase& c, double bytes) {
  const auto free = static_cast<double>(ops.free_memory());
  if (bytes <= kShare * free) return;
  throw Error(ErrorCode::out_of_memory,
              fmt::format("{} takes {:.0f} MB, expected at most {:.0f} % of the {:.0f} MB that are "
                          "free",
                          describe(c), bytes / kMb, 100 * kShare, free / kMb));
}

template <class To, class F>
void put(const std::vector<double>& from, std::vector<std::byte>& to, F narrowed) {
  for (size_t i = 0; i < from.size(); ++i) {
    const To x = narrowed(from[i]);
    std::memcpy(to.data() + i * sizeof(To), &x, sizeof(To));
  }
}

std::vector<std::byte> encode(const std::vector<double>& values, DType type) {
  std::vector<std::byte> out(values.size() * size_of(type));
  switch (type) {
    case DType::f32:
      put<float>(values, out, [](double x) { return static_cast<float>(x); });
      break;
    case DType::f64:
      put<double>(values, out, [](double x) { return x; });
      break;
    case DType::bf16:
      put<Half>(values, out, [](double x) { return to_bf16_nearest(static_cast<float>(x)); });
      break;
    case DType::f16:
      put<Half>(values, out, [](double x) { return to_f16_nearest(static_cast<float>(x)); });
      break;
  }
  return out;
}

double decode(const std::byte* from, DType type) {
  const auto get = [&]<class T>(T x) {
    std::memcpy(&x, from, sizeof(T));
    return x;
  };
  switch (type) {
    case DType::f32:
      return static_cast<double>(get(0.0f));
    case DType::f64:
      return get(0.0);
    case DType::bf16:
      return static_cast<double>(from_bf16(get(Half{})));
    case DType::f16:
      return static_cast<double>(from_f16(get(Half{})));
  }
  return 0;
}

}  // namespace

std::string describe(const AttentionCase& c) {
  const gpt::AttentionShape& s = c.shape;
  return fmt::format("{} attention in {} of batch {}, {} {} of {} over {} positions",
                     attention_name(c.how), gpt::to_string(c.compute), s.batch, s.heads,
                     s.heads == 1 ? "head" : "heads", s.width, s.time);
}

std::unique_ptr<gpt::Ops> attention_ops(const AttentionPlace& place, const AttentionCase& c) {
  const gpt::Config none;  // attention does not look at it
  const bool tf32 = c.compute == gpt::Compute::tf32;
  if (place.device.kind == Device::Kind::cuda) {
    if (c.compute == gpt::Compute::fp64) {
      throw Error(ErrorCode::unsupported,
                  "attention in fp64 on a GPU, expected fp32, tf32, bf16 or fp16");
    }
    if (tf32 && c.how == gpt::Attention::fused) {
      throw Error(ErrorCode::unsupported,
                  "no fused attention in tf32: its products are fp32's own, expected fp32, bf16 or "
                  "fp16");
    }
    gpt::GpuOptions gpu;
    gpu.device = place.device.index;
    gpu.tf32 = tf32;
    gpu.deterministic = place.deterministic;
    return gpt::gpu_ops(none, gpu);
  }
  if (c.compute == gpt::Compute::fp32) return gpt::cpu_ops<float>(none, place.threads);
  if (c.compute == gpt::Compute::fp64) return gpt::cpu_ops<double>(none, place.threads);
  throw Error(
      ErrorCode::unsupported,
      fmt::format("attention in {} on the CPU, expected fp32 or fp64", gpt::to_string(c.compute)));
}

AttentionWork::AttentionWork(gpt::Ops& ops, const AttentionCase& c) : ops_(ops), case_(c) {
  const gpt::AttentionShape& s = c.shape;
  const DType type = type_of(c.compute);
  const auto product = [&](std::initializer_list<int64_t> factors) {
    auto out = static_cast<double>(size_of(type));  // beyond what integers hold
    for (const int64_t f : factors) out *= static_cast<double>(f);
    return out;
  };
  memory_.model = memory_.gradients = product({4, s.batch, s.time, s.heads, s.width});
  if (c.how == gpt::Attention::naive) {
    memory_.saved = product({s.batch, s.heads, s.time, s.time});
  }
  require_memory(ops, c, memory_.total());
  const gpt::Extent saved = ops.attention_saved(c.how, s, type);
  const gpt::Extent forward = ops.attention_scratch(c.how, s, type, false);
  const gpt::Extent backward = ops.attention_scratch(c.how, s, type, true);
  memory_.saved = bytes_of(saved);
  memory_.scratch = std::max(bytes_of(forward), bytes_of(backward));
  require_memory(ops, c, memory_.total());
  qkv_ = dqkv_ = {nullptr, type, s.batch * s.time, 3 * columns()};
  out_ = dout_ = {nullptr, type, s.batch * s.time, columns()};
  saved_ = {nullptr, saved.type, saved.rows, saved.columns};
  forward_scratch_ = {nullptr, forward.type, forward.rows, forward.columns};
  backward_scratch_ = {nullptr, backward.type, backward.rows, backward.columns};
}

AttentionWork::~AttentionWork() {
  for (void* memory : {qkv_.data, out_.data, saved_.data, dqkv_.data, dout_.data, scratch_}) {
    if (memory != nullptr) ops_.release(memory);
  }
}

void AttentionWork::allocate() {
  for (gpt::Tensor* t : {&qkv_, &out_, &saved_, &dqkv_, &dout_}) {
    if (t->data == nullptr) t->data = ops_.allocate(t->bytes());
  }
  if (memory_.scratch == 0 || scratch_ != nullptr) return;
  scratch_ = ops_.allocate(std::max(forward_scratch_.bytes(), backward_scratch_.bytes()));
  forward_scratch_.data = backward_scratch_.data = scratch_;
}

void AttentionWork::fill(uint64_t seed) {
  allocate();
  set(qkv_, combine(seed, 0));
  set(dout_, combine(seed, 1));
}

void AttentionWork::fill_as(const AttentionWork& other) {
  allocate();
  for (const auto& [to, from] : {std::pair(qkv_, other.qkv_), std::pair(dout_, other.dout_)}) {
    const std::vector<std::byte> bytes = encode(other.read(from), to.type);
    ops_.upload(to.data, bytes.data(), bytes.size());
  }
}

void AttentionWork::set(gpt::Tensor to, uint64_t seed) {
  const double size = 2 * std::sqrt(3.0);
  for (int64_t first = 0; first < to.elements(); first += kAtATime) {
    std::vector<double> some(static_cast<size_t>(std::min(kAtATime, to.elements() - first)));
    for (size_t i = 0; i < some.size(); ++i) {
      const Bits64 bits = combine(seed, static_cast<Bits64>(first) + i);
      some[i] = size * (static_cast<double>(bits >> 11) * 0x1p-53 - 0.5);
    }
    const std::vector<std::byte> bytes = encode(some, to.type);
    ops_.upload(to.as<std::byte>() + static_cast<size_t>(first) * size_of(to.type), bytes.data(),
                bytes.size());
  }
}

std::vector<double> AttentionWork::read(gpt::Tensor from) const {
  std::vector<std::byte> bytes(from.bytes());
  ops_.download(bytes.data(), from.data, bytes.size());
  std::vector<double> out(static_cast<size_t>(from.elements()));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = decode(bytes.data() + i * size_of(from.type), from.type);
  }
  return out;
}

void AttentionWork::run(int program, int64_t times) {
  ops_.run(program, [&] {
    ops_.mark(0);
    for (int64_t i = 0; i < times; ++i) {
      ops_.attention(case_.how, case_.shape, qkv_, out_, saved_, forward_scratch_);
    }
    ops_.mark(1);
    for (int64_t i = 0; i < times; ++i) {
      ops_.attention_backward(case_.how, case_.shape, qkv_, out_, saved_, dout_, dqkv_,
                              backward_scratch_);
    }
    ops_.mark(2);
  });
}

double AttentionWork::forward_s(int64_t times) {
  return ops_.between(0, 1) / static_cast<double>(times);
}

double AttentionWork::backward_s(int64_t times) {
  return ops_.between(1, 2) / static_cast<double>(times);
}

}  // namespace gallop::bench
