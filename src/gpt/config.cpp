// SPDX-License-Identifier: MIT
#include "gpt/config.h"

#include <fmt/format.h>

#include "gallop/error.h"
#include "gpt/layout.h"

namespace gallop::gpt {

void validate(const Config& c) {
  const auto need = [](bool ok, const std::string& sentence) {
    if (!ok) throw Error(ErrorCode::invalid_argument, sentence);
  };
  const auto positive = [&](const char* name, int64_t value) {
    need(value > 0, fmt::format("the model's {} is {}, expected at least 1", name, value));
  };
  positive("number of layers", c.layers);
  positive("number of heads", c.heads);
  positive("width", c.width);
  positive("hidden width", c.hidden);
  positive("vocabulary", c.vocabulary);
  positive("context", c.context);
  need(c.width % c.heads == 0,
       fmt::format("a width of {} with {} heads, expected a multiple of them", c.width, c.heads));
  need(c.positions == Positions::learned || c.head_width() % 2 == 0,
       fmt::format("rope with heads {} wide, expected an even width", c.head_width()));
  need(c.vocabulary <= int64_t{1} << 30,
       fmt::format("a vocabulary of {}, expected at most 2^30", c.vocabulary));
  need(c.epsilon > 0, fmt::format("epsilon {}, expected a number above 0", c.epsilon));
}

int64_t parameter_count(const Config& config) {
  int64_t n = 0;
  for (const ParamSpec& p : layout(config)) n += p.elements();
  return n;
}

double flops_per_token(const Config& c, int64_t time) {
  const double width = static_cast<double>(c.width), layers = static_cast<double>(c.layers);
  const double block = width * (4 * width + static_cast<double>(c.expanded() + c.hidden));
  const double weights = layers * block + width * static_cast<double>(c.vocabulary);
  return 6 * weights + 12 * layers * width * static_cast<double>(time);
}

std::string describe(const Config& c) {
  return fmt::format(
      "{} layers, {} heads, {} wide, {} hidden, vocabulary {}, context {}, {}, {}, {} "
      "positions, {}, {} head",
      c.layers, c.heads, c.width, c.hidden, c.vocabulary, c.context,
      c.norm == Norm::layer ? "layer norm" : "rms norm", to_string(c.activation),
      c.positions == Positions::rope ? "rotary" : "learned", c.biases ? "biases" : "no biases",
      c.tied ? "tied" : "untied");
}

std::string_view to_string(Norm n) { return n == Norm::layer ? "layer" : "rms"; }
std::string_view to_string(Activation a) { return a == Activation::gelu ? "gelu" : "swiglu"; }
std::string_view to_string(Positions p) { return p == Positions::learned ? "learned" : "rope"; }

}  // namespace gallop::gpt
