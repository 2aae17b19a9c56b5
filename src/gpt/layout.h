// SPDX-License-Identifier: MIT
// A model's parameters: what they are called, how large they are, how they begin.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gallop/types.h"
#include "gpt/config.h"

namespace gallop::gpt {

enum class Init { normal, small_normal, zeros, ones };  // small: into the residual stream

// Which part of a block (or of what surrounds them) a parameter is.
enum class Part {
  embedding,
  positions,
  norm1,
  norm1_bias,
  qkv,
  qkv_bias,
  out,
  out_bias,
  norm2,
  norm2_bias,
  fc,
  fc_bias,
  proj,
  proj_bias,
  norm,
  norm_bias,
  head,
};
inline constexpr int kParts = static_cast<int>(Part::head) + 1;

struct ParamSpec {
  std::string name;            // as in Hugging Face's GPT-2
  std::vector<int64_t> shape;  // matrices: outputs x inputs
  Part part;
  int64_t layer;  // 0 and on; -1 outside of the blocks
  Role role;
  Init init;

  int64_t elements() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
  bool matrix() const { return shape.size() == 2; }
};

// In the order in which forward reads them.
std::vector<ParamSpec> layout(const Config& config);

// A parameter's first values, the same on every device: each a function of (seed, name, its index).
class InitialValues {
 public:
  InitialValues(const ParamSpec& spec, const Config& config, uint64_t seed);
  // Those from `first` on.
  void write(int64_t first, std::span<float> out) const;

 private:
  Init init_;
  float scale_;
  uint64_t key_;
};

}  // namespace gallop::gpt
