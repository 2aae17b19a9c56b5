// SPDX-License-Identifier: MIT
#include "gpt/layout.h"

#include <fmt/format.h>

#include <algorithm>
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

namespace {

// Where a normal distribution has (i + 1/2) / kSteps of itself below, by halving.
constexpr int kStepBits = 12, kSteps = 1 << kStepBits;

struct Quantiles {
  float at[kSteps + 1];

  Quantiles() {
    for (int i = 0; i <= kSteps; ++i) {
      // The ends, at infinity, are cut off where a step's middle would be.
      const double share =
          std::clamp(static_cast<double>(i) / kSteps, 0.25 / kSteps, 1 - 0.25 / kSteps);
      double low = -10, high = 10;
      for (int k = 0; k < 60; ++k) {
        const double middle = (low + high) / 2;
        const double below = std::erfc(-middle / std::numbers::sqrt2) / 2;
        (below < share ? low : high) = middle;
      }
      at[i] = static_cast<float>(low);
    }
  }
};

}  // namespace

InitialValues::InitialValues(const ParamSpec& spec, const Config& config, uint64_t seed)
    : init_(spec.init), scale_(0.02f), key_(seed) {  // GPT-2's
  if (init_ == Init::small_normal) scale_ /= std::sqrt(2 * static_cast<float>(config.layers));
  for (char letter : spec.name) key_ = combine(key_, static_cast<unsigned char>(letter));
}

void InitialValues::write(int64_t first, std::span<float> out) const {
  if (init_ == Init::zeros || init_ == Init::ones) {
    return std::fill(out.begin(), out.end(), init_ == Init::ones ? 1.0f : 0.0f);
  }
  static const Quantiles quantiles;
  constexpr int kRest = 32 - kStepBits;
  for (size_t i = 0; i < out.size(); ++i) {
    // One number for two elements; between quantiles, a straight line.
    const Bits64 index = static_cast<Bits64>(first) + i;
    const Bits32 bits = static_cast<Bits32>(combine(key_, index / 2) >> (index % 2 * 32));
    const Bits32 step = bits >> kRest;
    const float part = static_cast<float>(bits << kStepBits >> kStepBits) * (1.0f / (1u << kRest));
    const float low = quantiles.at[step], high = quantiles.at[step + 1];
    out[i] = scale_ * (low + part * (high - low));
  }
}

}  // namespace gallop::gpt
