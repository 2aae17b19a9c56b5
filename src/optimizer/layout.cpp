// SPDX-License-Identifier: MIT
// Where each parameter's states, master and remainder lie, and in which format.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "core/convert.h"
#include "cuda/memory.h"
#include "gallop/error.h"
#include "optimizer/impl.h"

namespace gallop {
namespace {

using cpu::Storage;

[[noreturn]] void refuse(const Param& p, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, fmt::format("parameter '{}': {}", p.name, why));
}

int64_t element_count(const Param& p) {
  int64_t n = 1;
  for (int64_t d : p.shape) {
    if (d < 0 || __builtin_mul_overflow(n, d, &n) || n > int64_t{1} << 56) {
      refuse(p, fmt::format("shape [{}] is not one of a tensor", fmt::join(p.shape, ", ")));
    }
  }
  return n;
}

Storage param_storage(const Param& p, Rounding rounding) {
  switch (p.dtype) {
    case DType::f32:
      return Storage::f32;
    case DType::f64:
      return Storage::f64;
    case DType::bf16:
      return rounding == Rounding::nearest      ? Storage::bf16_nearest
             : rounding == Rounding::stochastic ? Storage::bf16_stochastic
             : rounding == Rounding::master     ? Storage::bf16_master
                                                : Storage::bf16_remainder;
    case DType::f16:
      if (rounding == Rounding::remainder) {
        refuse(p, "rounding 'remainder' needs bf16, and the parameter is fp16");
      }
      return rounding == Rounding::nearest      ? Storage::f16_nearest
             : rounding == Rounding::stochastic ? Storage::f16_stochastic
                                                : Storage::f16_master;
  }
  refuse(p, "unknown dtype");
}

Storage grad_storage(const Param& p) {
  if ((p.dtype == DType::f64) != (p.grad_dtype == DType::f64)) {
    refuse(p, fmt::format("{} parameter with {} gradient: fp64 goes with fp64 only",
                          to_string(p.dtype), to_string(p.grad_dtype)));
  }
  switch (p.grad_dtype) {
    case DType::f32:
      return Storage::f32;
    case DType::f64:
      return Storage::f64;
    case DType::bf16:
      return Storage::bf16_nearest;
    case DType::f16:
      return Storage::f16_nearest;
  }
  refuse(p, "unknown gradient dtype");
}

Storage state_storage(const Param& p, const GroupOptions& o, const StateInfo& s, Device device) {
  if (p.dtype == DType::f64) {
    if (o.state != StateFormat::f32) {
      refuse(p, fmt::format("state format {}: an fp64 parameter keeps fp64 state",
                            to_string(o.state)));
    }
    return Storage::f64;
  }
  if (s.scratch) {  // tensor cores want bf16
    const bool narrow = device.kind == Device::Kind::cuda && !s.exact;
    return narrow ? Storage::bf16_nearest : Storage::f32;
  }
  if (o.state == StateFormat::f32 || s.exact) return Storage::f32;
  return o.state_rounding == Rounding::nearest ? Storage::bf16_nearest : Storage::bf16_stochastic;
}

size_t element_bytes(Storage s) { return s == Storage::f64 ? 8 : s == Storage::f32 ? 4 : 2; }

size_t low_bytes(Storage s) {
  if (s == Storage::bf16_remainder) return 2;
  return s == Storage::bf16_master || s == Storage::f16_master ? 4 : 0;
}

void check_pointers(const Param& p, int64_t n, Device device) {
  if (device.kind != Device::Kind::cuda || n == 0) return;
  cuda::require_reachable(device.index, p.data, fmt::format("parameter '{}': data", p.name));
  if (p.grad == nullptr) return;
  cuda::require_reachable(device.index, p.grad, fmt::format("parameter '{}': gradient", p.name));
}

Bits64 name_id(std::string_view name) {
  Bits64 h = 0xcbf29ce484222325ull;  // FNV-1a
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h;
}

// Hands out aligned places, first counting, then for real. On the CPU, large arrays, often of the
// same power of two, are kept from beginning at the same offset in a page: loads would wait for
// stores that only seem to overlap them. A GPU wants whole cache lines.
struct Cursor {
  static constexpr size_t kLarge = 1 << 14;
  Device device;
  std::byte* base;
  size_t used = 0;
  void* take(int64_t n, size_t width) {
    const bool cpu = device.kind == Device::Kind::cpu;
    const size_t align = cpu ? 64 : 512, bytes = static_cast<size_t>(n) * width;
    if (cpu && bytes >= kLarge) used += 13 * align;
    void* at = base == nullptr ? nullptr : base + used;
    used += (bytes + align - 1) / align * align;
    return at;
  }
};

void place(const RuleInfo& rule, std::vector<Slot>& added, Cursor& cursor) {
  for (Slot& slot : added) {
    cpu::Tensor& t = slot.tensor;
    if (const size_t bytes = low_bytes(t.param_storage)) t.low = cursor.take(t.n, bytes);
    for (size_t j = 0; j < rule.states.size(); ++j) {
      if ((t.present >> j & 1) != 0 && !rule.states[j].scratch) {
        t.state[j] = cursor.take(state_elements(t.view, t.n, rule.states[j]),
                                 element_bytes(t.state_storage[j]));
      }
    }
  }
}

}  // namespace

View view_of(const Rule& rule, const Param& p, int64_t n, const double* hyper) {
  if (rule.view == nullptr || n == 0) return {1, 1, n, false};
  const bool inner = p.role == Role::hidden || p.role == Role::other;
  const View view = rule.view({p.shape.data(), static_cast<int>(p.shape.size()), n, inner}, hyper);
  if (view.misfit != nullptr) {
    refuse(p, fmt::format("shape [{}]: {}", fmt::join(p.shape, ", "), view.misfit));
  }
  return view;
}

int64_t state_elements(const View& v, int64_t n, const StateInfo& s) {
  switch (s.per) {
    case StatePer::element:
      return n;
    case StatePer::row:
      return v.batches * v.rows;
    case StatePer::column:
      return v.batches * v.columns;
    case StatePer::row_pair:
      return v.left ? v.batches * v.rows * v.rows : 0;
    case StatePer::column_pair:
      return v.right ? v.batches * v.columns * v.columns : 0;
  }
  return 0;
}

void fill_low(const Slot& slot, Device device) {
  const cpu::Tensor& t = slot.tensor;
  if (t.n == 0 || t.low == nullptr) return;  // it may have no memory at all
  if (device.kind == Device::Kind::cuda) {
    if (t.param_storage == Storage::bf16_remainder) {
      cuda::zero(device.index, t.low, static_cast<size_t>(t.n) * 2);
    } else {
      cuda::fill_masters(device.index, t.param, static_cast<float*>(t.low), t.n,
                         t.param_storage == Storage::bf16_master);
    }
    return;
  }
  const Half* in = static_cast<const Half*>(t.param);
  if (t.param_storage == Storage::bf16_remainder) {
    std::memset(t.low, 0, static_cast<size_t>(t.n) * 2);
  } else if (t.param_storage == Storage::bf16_master) {
    std::transform(in, in + t.n, static_cast<float*>(t.low), [](Half h) { return from_bf16(h); });
  } else if (t.param_storage == Storage::f16_master) {
    std::transform(in, in + t.n, static_cast<float*>(t.low), [](Half h) { return from_f16(h); });
  }
}

void prepare_group(const Rule& erased, const Options& options, Group& group,
                   std::vector<Slot>& added) {
  const RuleInfo& rule = erased.info;
  for (Slot& slot : added) {
    const Param& p = slot.param;
    cpu::Tensor& t = slot.tensor;
    t.n = element_count(p);
    if (p.data == nullptr && t.n > 0) refuse(p, "data is null");
    check_pointers(p, t.n, options.device);
    t.param = p.data;
    t.grad = p.grad;
    t.view = view_of(erased, p, t.n, group.hyper.data());
    t.present = group.present;
    for (size_t j = 0; j < rule.states.size(); ++j) {
      const bool kept = t.view.matrix ? rule.states[j].of_matrices : rule.states[j].of_vectors;
      const bool side =
          !is_square(rule.states[j].per) || state_elements(t.view, t.n, rule.states[j]) > 0;
      if (!kept || !side) t.present &= ~(1u << j);
    }
    t.param_storage = param_storage(p, group.options.rounding);
    t.grad_storage = grad_storage(p);
    for (size_t j = 0; j < rule.states.size(); ++j) {
      t.state_storage[j] = state_storage(p, group.options, rule.states[j], options.device);
    }
    slot.id = name_id(p.name);
  }
  Cursor count{options.device, nullptr};
  place(rule, added, count);
  group.memory = Memory(count.used, options.allocator, options.device);
  Cursor real{options.device, group.memory.data()};
  place(rule, added, real);
  for (Slot& slot : added) fill_low(slot, options.device);
}

}  // namespace gallop
