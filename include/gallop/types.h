// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gallop {

enum class DType { f32, bf16, f16, f64 };

// How a 16-bit parameter keeps what its format cannot hold.
enum class Rounding {
  nearest,     // it does not
  stochastic,  // rounds up or down at random so that it is right on average
  master,      // an fp32 copy beside it
  remainder,   // bf16 only: 16 more bits beside it; together exactly the fp32 value
};

enum class StateFormat {
  f32,
  bf16,
  // In blocks that share an fp32 scale, 256 elements (4 bits: 128):
  q8,    // gallop's own
  bnb8,  // as bitsandbytes'
  q4,
  fp8,  // e4m3
};

enum class Mode {
  unfused,   // one pass over memory per arithmetic operation, one tensor at a time
  single,    // fused, one tensor at a time
  multi,     // fused, all tensors at once
  compiled,  // as multi, by kernels that are compiled for the formats at hand when first needed
};

constexpr bool one_by_one(Mode m) { return m == Mode::unfused || m == Mode::single; }

// What a parameter is in its model, for policies that treat kinds apart.
enum class Role { other, embedding, norm, bias, head, hidden };

// Where parameters, gradients and state lie and steps run.
struct Device {
  enum class Kind { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;  // which GPU
  friend bool operator==(const Device&, const Device&) = default;
};

size_t size_of(DType);

std::string_view to_string(DType);
std::string_view to_string(Rounding);
std::string_view to_string(StateFormat);
std::string_view to_string(Mode);
std::string_view to_string(Role);
std::string to_string(Device);

// The inverse; throw on an unknown name, listing the known ones.
DType parse_dtype(std::string_view);
Rounding parse_rounding(std::string_view);
StateFormat parse_state_format(std::string_view);
Mode parse_mode(std::string_view);
Role parse_role(std::string_view);
Device parse_device(std::string_view);  // cpu, cuda, cuda:1

}  // namespace gallop
