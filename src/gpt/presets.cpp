// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "gallop/error.h"
#include "gpt/config.h"

namespace gallop::gpt {
namespace {

Config gpt2(int64_t layers, int64_t heads, int64_t width) {
  Config c;
  c.layers = layers, c.heads = heads, c.width = width, c.hidden = 4 * width;
  return c;
}

Config cs336(int64_t width, int64_t hidden, int64_t layers, int64_t heads) {
  Config c;
  c.layers = layers, c.heads = heads, c.width = width, c.hidden = hidden;
  c.vocabulary = 10000, c.context = 1024;
  c.norm = Norm::rms, c.activation = Activation::swiglu, c.positions = Positions::rope;
  c.biases = false, c.tied = false;
  return c;
}

Config bytes(int64_t layers, int64_t heads, int64_t width, int64_t context) {
  Config c = gpt2(layers, heads, width);
  c.vocabulary = 256, c.context = context;
  return c;
}

Config adan(int64_t heads, int64_t layers, int64_t width) {
  Config c = gpt2(layers, heads, width);
  c.vocabulary = 49280, c.context = 2048;
  return c;
}

int64_t whole_number(std::string_view text, std::string_view of) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && value > 0) return value;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("'{}' in model '{}', expected a whole number above 0", text, of));
}

bool truth(std::string_view text, std::string_view of) {
  if (text == "yes" || text == "no") return text == "yes";
  throw Error(ErrorCode::invalid_argument,
              fmt::format("'{}' in model '{}', expected yes or no", text, of));
}

template <class E>
E one_of(std::string_view text, std::string_view of, E a, E b) {
  if (text == to_string(a)) return a;
  if (text == to_string(b)) return b;
  throw Error(ErrorCode::invalid_argument, fmt::format("'{}' in model '{}', expected {} or {}",
                                                       text, of, to_string(a), to_string(b)));
}

void change(Config& c, std::string_view key, std::string_view value, std::string_view of) {
  const auto number = [&] { return whole_number(value, of); };
  if (key == "layers") {
    c.layers = number();
  } else if (key == "heads") {
    c.heads = number();
  } else if (key == "width") {
    c.hidden = number() * c.hidden / c.width;  // keeps their ratio; hidden= comes after
    c.width = number();
  } else if (key == "hidden") {
    c.hidden = number();
  } else if (key == "vocabulary") {
    c.vocabulary = number();
  } else if (key == "context") {
    c.context = number();
  } else if (key == "norm") {
    c.norm = one_of(value, of, Norm::layer, Norm::rms);
  } else if (key == "activation") {
    c.activation = one_of(value, of, Activation::gelu, Activation::swiglu);
  } else if (key == "positions") {
    c.positions = one_of(value, of, Positions::learned, Positions::rope);
  } else if (key == "biases") {
    c.biases = truth(value, of);
  } else if (key == "tied") {
    c.tied = truth(value, of);
  } else {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("'{}' in model '{}', expected layers, heads, width, hidden, "
                            "vocabulary, context, norm, activation, positions, biases or tied",
                            key, of));
  }
}

Config parse_adan(std::string_view shape, std::string_view of) {
  const size_t first = shape.find('x'), second = shape.rfind('x');
  if (first == std::string_view::npos || first == second) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("model '{}', expected adan:HEADSxLAYERSxWIDTH", of));
  }
  return adan(whole_number(shape.substr(0, first), of),
              whole_number(shape.substr(first + 1, second - first - 1), of),
              whole_number(shape.substr(second + 1), of));
}

Config named(std::string_view name) {
  for (const Preset& p : presets()) {
    if (p.name == name) return p.config;
  }
  std::vector<std::string_view> names;
  for (const Preset& p : presets()) names.emplace_back(p.name);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("no model is called '{}', expected one of {}, adan:HEADSxLAYERSxWIDTH",
                          name, fmt::join(names, ", ")));
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"nano", "bytes, trains on two cores in a minute", bytes(4, 4, 128, 128)},
      {"char", "bytes, a small GPT for a text of a few megabytes", bytes(6, 6, 384, 256)},
      {"gpt2", "GPT-2, 124M", gpt2(12, 12, 768)},
      {"gpt2-medium", "GPT-2, 355M", gpt2(24, 16, 1024)},
      {"gpt2-large", "GPT-2, 774M", gpt2(36, 20, 1280)},
      {"gpt2-xl", "GPT-2, 1.5B", gpt2(48, 25, 1600)},
      {"S", "CS336 small", cs336(768, 3072, 12, 12)},
      {"M", "CS336 medium", cs336(1024, 4096, 24, 16)},
      {"L", "CS336 large", cs336(1280, 5120, 36, 20)},
      {"XL", "CS336 extra large", cs336(1600, 6400, 48, 25)},
      {"2p7", "CS336 2.7B", cs336(2560, 10240, 32, 32)},
      {"10B", "CS336 10B", cs336(4608, 12288, 50, 36)},
  };
  return all;
}

Config parse_model(std::string_view text) {
  constexpr std::string_view kAdan = "adan:";
  size_t end = text.find(':');
  Config c;
  if (text.starts_with(kAdan)) {
    end = text.find(':', kAdan.size());
    c = parse_adan(text.substr(kAdan.size(), end - kAdan.size()), text);
  } else {
    c = named(text.substr(0, end));
  }
  while (end != std::string_view::npos) {
    const size_t begin = end + 1;
    end = text.find(':', begin);
    const std::string_view part = text.substr(begin, end - begin);
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("'{}' in model '{}', expected KEY=VALUE", part, text));
    }
    change(c, part.substr(0, equals), part.substr(equals + 1), text);
  }
  validate(c);
  return c;
}

}  // namespace gallop::gpt
