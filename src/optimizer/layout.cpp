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

// A block that shares a scale must not reach from one row into the next where rows are summed up.
bool rows_fit(const View& view) { return !view.matrix || view.columns % kBlock == 0; }

// Written by a pass and read by a later one, which sees what was stored.
bool is_read_again(const Rule& rule, size_t j) {
  bool written = false;
  for (const Pass& pass : rule.passes) {
    if (written && (pass.reads >> j & 1) != 0) return true;
    written = written || (pass.writes >> j & 1) != 0;
  }
  return false;
}
Storage storage_of(const Slot& slot, const GroupOptions& o, const Rule& erased, size_t j,
                   Device device) {
  const RuleInfo& rule = erased.info;
  const StateInfo& s = rule.states[j];
  if (slot.param.dtype == DType::f64) return Storage::f64;
  if (s.scratch) {  // tensor cores want bf16
    const bool narrow = device.kind == Device::Kind::cuda && !s.exact;
    return narrow ? Storage::bf16_nearest : Storage::f32;
  }
  if (s.exact) return Storage::f32;
  int averages = 0;
  for (size_t k = 0; k < rule.states.size(); ++k) {
    const bool kept = (slot.tensor.present >> k & 1) != 0;
    if (kept && !rule.states[k].exact && !rule.states[k].scratch) ++averages;
  }
  const Storage storage = state_storage(slot.format, o.state_rounding, s.nonneg, averages);
  // There, a small second moment may become zero, and would be divided by.
  if (s.nonneg && is_bitsandbytes(storage) && is_read_again(erased, j)) return Storage::f32;
  return is_quantised(storage) && !rows_fit(slot.tensor.view) ? Storage::f32 : storage;
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
  void* take(int64_t size) {
    const bool cpu = device.kind == Device::Kind::cpu;
    const size_t align = cpu ? 64 : 512, bytes = static_cast<size_t>(size);
    if (cpu && bytes >= kLarge) used += 13 * align;
    void* at = base == nullptr ? nullptr : base + used;
    used += (bytes + align - 1) / align * align;
    return at;
  }
};

void place(const RuleInfo& rule, std::vector<Slot>& added, Cursor& cursor) {
  for (Slot& slot : added) {
    cpu::Tensor& t = slot.tensor;
    const bool has_low = low_bytes_for(t.param_storage, 1) > 0;
    if (has_low) t.low = cursor.take(low_bytes_for(t.param_storage, t.n));
    for (size_t j = 0; j < rule.states.size(); ++j) {
      if ((t.present >> j & 1) == 0 || rule.states[j].scratch) continue;
      const int64_t n = state_elements(t.view, t.n, rule.states[j]);
      t.state[j] = cursor.take(bytes_for(t.state_storage[j], n));
      if (!is_quantised(t.state_storage[j])) continue;
      t.scale[j] = static_cast<float*>(cursor.take(4 * scales_for(t.state_storage[j], n)));
    }
  }
}

}  // namespace

Storage state_storage(StateFormat format, Rounding rounding, bool nonneg, int averages) {
  switch (format) {
    case StateFormat::f32:
      return Storage::f32;
    case StateFormat::bf16:
      return rounding == Rounding::nearest ? Storage::bf16_nearest : Storage::bf16_stochastic;
    case StateFormat::q8:
      return nonneg ? Storage::q8_nonneg : Storage::q8;
    case StateFormat::bnb8:  // there, an only state is signed whatever it holds
      return nonneg && averages > 1 ? Storage::bnb8_nonneg : Storage::bnb8;
    case StateFormat::q4:
      return nonneg ? Storage::q4_nonneg : Storage::q4;
    case StateFormat::fp8:
      return Storage::fp8;
  }
  return Storage::f32;
}

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

void choose_states(const Rule& erased, const Group& group, Slot& slot, Device device) {
  const RuleInfo& rule = erased.info;
  const Param& p = slot.param;
  cpu::Tensor& t = slot.tensor;
  t.n = element_count(p);
  t.view = view_of(erased, p, t.n, group.hyper.data());
  t.present = group.present;
  for (size_t j = 0; j < rule.states.size(); ++j) {
    const bool kept = t.view.matrix ? rule.states[j].of_matrices : rule.states[j].of_vectors;
    const bool side =
        !is_square(rule.states[j].per) || state_elements(t.view, t.n, rule.states[j]) > 0;
    if (!kept || !side) t.present &= ~(1u << j);
  }
  if (p.dtype == DType::f64 && slot.format != StateFormat::f32) {
    refuse(p, fmt::format("state format {}: an fp64 parameter keeps fp64 state",
                          to_string(slot.format)));
  }
  for (size_t j = 0; j < rule.states.size(); ++j) {
    t.state_storage[j] = storage_of(slot, group.options, erased, j, device);
  }
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

size_t plan_group(const Rule& rule, Device device, const Group& group, std::vector<Slot>& added) {
  for (Slot& slot : added) {
    const Param& p = slot.param;
    slot.tensor.param_storage = param_storage(p, group.options.rounding);
    slot.tensor.grad_storage = grad_storage(p);
    slot.format = group.options.state.choose(p);
    choose_states(rule, group, slot, device);
    slot.id = name_id(p.name);
  }
  Cursor count{device, nullptr};
  place(rule.info, added, count);
  return count.used;
}

void prepare_group(const Rule& rule, const Options& options, Group& group,
                   std::vector<Slot>& added) {
  for (Slot& slot : added) {
    const Param& p = slot.param;
    const int64_t n = element_count(p);
    if (p.data == nullptr && n > 0) refuse(p, "data is null");
    check_pointers(p, n, options.device);
    slot.tensor.param = p.data;
    slot.tensor.grad = p.grad;
  }
  const size_t bytes = plan_group(rule, options.device, group, added);
  group.memory = Memory(bytes, options.allocator, options.device);
  Cursor real{options.device, group.memory.data()};
  place(rule.info, added, real);
  for (Slot& slot : added) fill_low(slot, options.device);
}

}  // namespace gallop
