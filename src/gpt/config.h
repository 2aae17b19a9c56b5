// SPDX-License-Identifier: MIT
// What a decoder is made of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gallop::gpt {

enum class Norm { layer, rms };
enum class Activation { gelu, swiglu };  // gelu by tanh, as GPT-2's
enum class Positions { learned, rope };  // rope turns pairs of neighbours

struct Config {
  int64_t layers = 12, heads = 12, width = 768;
  int64_t hidden = 3072;  // of the perceptron; swiglu has two matrices of this many rows
  int64_t vocabulary = 50257, context = 1024;
  Norm norm = Norm::layer;
  Activation activation = Activation::gelu;
  Positions positions = Positions::learned;
  bool biases = true;
  bool tied = true;  // the head is the embedding
  double epsilon = 1e-5;

  int64_t head_width() const { return width / heads; }
  int64_t expanded() const { return activation == Activation::swiglu ? 2 * hidden : hidden; }
  friend bool operator==(const Config&, const Config&) = default;
};

// Throws, naming what does not fit together.
void validate(const Config& config);

int64_t parameter_count(const Config& config);

// Floating-point operations of forward and backward for one token, as PaLM counts them: 6 for every
// weight of a matrix that is multiplied, 12 x width x time for each layer's attention.
double flops_per_token(const Config& config, int64_t time);

struct Preset {
  std::string name, about;
  Config config;
};
const std::vector<Preset>& presets();

// "gpt2", or with changes behind it: "gpt2:layers=6:vocabulary=49280". Also "adan:6x12x768": heads,
// layers and width of one of the 25 shapes that Adan's authors measured, or of any other.
Config parse_model(std::string_view text);

// The inverse of what matters: one line that parse_model of a preset with changes would give back.
std::string describe(const Config& config);

std::string_view to_string(Norm);
std::string_view to_string(Activation);
std::string_view to_string(Positions);

}  // namespace gallop::gpt
