// SPDX-License-Identifier: MIT
#include "gpt/layout.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "core/random.h"

namespace gallop::gpt {

std::vector<ParamSpec> layout(const Config& c) {
  std::vector<ParamSpec> all;
  const auto add = [&](Part part, int64_t layer, std::string name, std::vector<int64_t> shape,
                       Role role, Init init) {
    all.push_back({std::move(name), std::move(shape), part, layer, role, init});
  };
  const auto norm = [&](Part weight, Part bias, int64_t layer, const std::string& name) {
    add(weight, layer, name + ".weight", {c.width}, Role::norm, Init::ones);
    if (c.norm == Norm::layer) add(bias, layer, name + ".bias", {c.width}, Role::norm, Init::zeros);
  };
  const auto linear = [&](Part weight, Part bias, int64_t layer, const std::string& name,
                          int64_t outputs, int64_t inputs, Init init) {
    add(weight, layer, name + ".weight", {outputs, inputs}, Role::hidden, init);
    if (c.biases) add(bias, layer, name + ".bias", {outputs}, Role::bias, Init::zeros);
  };
  add(Part::embedding, -1, "wte.weight", {c.vocabulary, c.width}, Role::embedding, Init::normal);
  if (c.positions == Positions::learned) {
    add(Part::positions, -1, "wpe.weight", {c.context, c.width}, Role::embedding, Init::normal);
  }
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string h = fmt::format("h.{}.", l);
    norm(Part::norm1, Part::norm1_bias, l, h + "ln_1");
    linear(Part::qkv, Part::qkv_bias, l, h + "attn.c_attn", 3 * c.width, c.width, Init::normal);
    linear(Part::out, Part::out_bias, l, h + "attn.c_proj", c.width, c.width, Init::small_normal);
    norm(Part::norm2, Part::norm2_bias, l, h + "ln_2");
    linear(Part::fc, Part::fc_bias, l, h + "mlp.c_fc", c.expanded(), c.width, Init::normal);
    linear(Part::proj, Part::proj_bias, l, h + "mlp.c_proj", c.width, c.hidden, Init::small_normal);
  }
  norm(Part::norm, Part::norm_bias, -1, "ln_f");
  if (!c.tied) {
    add(Part::head, -1, "lm_head.weight", {c.vocabulary, c.width}, Role::head, Init::normal);
  }
  return all;
}

std::vector<float> initial_values(const ParamSpec& spec, const Config& config, uint64_t seed) {
  const size_t n = static_cast<size_t>(spec.elements());
  if (spec.init == Init::zeros) return std::vector<float>(n, 0.0f);
  if (spec.init == Init::ones) return std::vector<float>(n, 1.0f);
  double scale = 0.02;  // GPT-2's
  if (spec.init == Init::small_normal) {
    scale /= std::sqrt(2 * static_cast<double>(config.layers));
  }
  Bits64 key = seed;
  for (char letter : spec.name) key = combine(key, static_cast<unsigned char>(letter));
  std::vector<float> values(n);
  for (size_t i = 0; i < n; i += 2) {  // two at a time, by Box and Muller
    const double u = static_cast<double>((combine(key, i) >> 11) + 1) * 0x1p-53;
    const double v = static_cast<double>(combine(key, i + 1) >> 11) * 0x1p-53;
    const double radius = scale * std::sqrt(-2 * std::log(u));
    const double angle = 2 * std::numbers::pi * v;
    values[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < n) values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return values;
}

}  // namespace gallop::gpt
