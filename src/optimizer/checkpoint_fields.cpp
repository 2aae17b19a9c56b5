// SPDX-License-Identifier: MIT
#include "optimizer/checkpoint.h"

#include <fmt/format.h>

#include "io/safetensors.h"

namespace gallop::checkpoint {
namespace {

using cpu::Storage;

const char* dtype_name(Storage s) {
  if (s == Storage::q8) return "I8";
  if (s == Storage::fp8) return "F8_E4M3";
  if (is_quantised(s)) return "U8";
  return s == Storage::f64 ? "F64" : s == Storage::f32 ? "F32" : "BF16";
}

// A state per row lacks the last dimension, one per column the last but one. One per pair of rows
// or columns is a square.
std::vector<int64_t> state_shape(const RuleInfo& rule, const StateInfo& s, const View& view,
                                 std::vector<int64_t> shape) {
  if (s.per == StatePer::element) return shape;
  if (s.per == StatePer::row_pair) return {view.batches, view.rows, view.rows};
  if (s.per == StatePer::column_pair) return {view.batches, view.columns, view.columns};
  const auto left_out = shape.end() - (s.per == StatePer::row ? 1 : 2);
  rule.keeps_dims ? void(*left_out = 1) : void(shape.erase(left_out));
  return shape;
}

}  // namespace

std::string key_of(const Slot& s, std::string_view what) {
  return fmt::format("state.{}.{}", s.param.name, what);
}

std::vector<Field> arrays_of(const Rule& rule, const Slot& s) {
  std::vector<Field> out;
  const auto add = [&](std::string_view what, const char* dtype, void* data,
                       const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    out.push_back(
        {key_of(s, what), dtype, shape, data, static_cast<size_t>(n) * io::dtype_size(dtype)});
  };
  for (size_t j = 0; j < rule.info.states.size(); ++j) {
    const StateInfo& info = rule.info.states[j];
    if ((s.tensor.present >> j & 1) == 0 || info.scratch) continue;
    const Storage storage = s.tensor.state_storage[j];
    std::vector<int64_t> shape = state_shape(rule.info, info, s.tensor.view, s.param.shape);
    if (is_4_bit(storage)) shape = {bytes_for(storage, s.tensor.n)};  // two to a byte
    add(info.name, dtype_name(storage), s.tensor.state[j], shape);
    if (!is_quantised(storage)) continue;
    add(info.name + ".absmax", "F32", s.tensor.scale[j], {scales_for(storage, s.tensor.n)});
  }
  if (s.tensor.param_storage == Storage::bf16_remainder) {
    add("remainder", "I16", s.tensor.low, s.param.shape);
  } else if (s.tensor.low != nullptr) {
    add("master", "F32", s.tensor.low, s.param.shape);
  }
  return out;
}

std::vector<Field> scalars_of(const Rule& rule, Slot& s) {
  std::vector<Field> out = {{key_of(s, "step"), "I64", {}, &s.steps, sizeof s.steps}};
  if (rule.info.counts_per_group) return out;
  for (size_t j = 0; j < rule.info.scalars.size(); ++j) {
    out.push_back({key_of(s, rule.info.scalars[j]), "F64", {}, &s.scalars[j], sizeof(double)});
  }
  return out;
}

}  // namespace gallop::checkpoint
