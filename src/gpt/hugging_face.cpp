// SPDX-License-Identifier: MIT
#include "gpt/hugging_face.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/convert.h"
#include "data/loader.h"
#include "gallop/error.h"
#include "io/atomic_file.h"
#include "io/safetensors.h"

namespace gallop::gpt {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kPrefix = "transformer.";
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kConfigFile = "config.json";

json describe_gpt2(const Config& c) {
  json j = {{"model_type", "gpt2"},
            {"architectures", {"GPT2LMHeadModel"}},
            {"n_layer", c.layers},
            {"n_head", c.heads},
            {"n_embd", c.width},
            {"n_positions", c.context},
            {"vocab_size", c.vocabulary},
            {"activation_function", "gelu_new"},
            {"layer_norm_epsilon", c.epsilon},
            {"tie_word_embeddings", true}};
  if (c.hidden != 4 * c.width) j["n_inner"] = c.hidden;
  return j;
}

// Ours are outputs x inputs.
bool turned(const ParamSpec& s) {
  return s.part == Part::qkv || s.part == Part::out || s.part == Part::fc || s.part == Part::proj;
}

std::vector<int64_t> their_shape(const ParamSpec& s) {
  return turned(s) ? std::vector<int64_t>{s.shape[1], s.shape[0]} : s.shape;
}

template <class T>
std::vector<T> transposed(const std::vector<T>& from, int64_t rows, int64_t columns) {
  std::vector<T> to(from.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      to[static_cast<size_t>(c * rows + r)] = from[static_cast<size_t>(r * columns + c)];
    }
  }
  return to;
}

std::vector<double> theirs(const ParamSpec& s, std::vector<double> values) {
  return turned(s) ? transposed(values, s.shape[0], s.shape[1]) : std::move(values);
}

struct Encoded {
  std::string dtype;
  std::vector<std::byte> bytes;
};

Encoded encode(const std::vector<double>& values, DType type) {
  const auto as = [&](const char* name, auto convert) {
    std::vector<decltype(convert(0.0))> raw(values.size());
    std::transform(values.begin(), values.end(), raw.begin(), convert);
    Encoded e{name, std::vector<std::byte>(raw.size() * sizeof(raw[0]))};
    if (!raw.empty()) std::memcpy(e.bytes.data(), raw.data(), e.bytes.size());
    return e;
  };
  switch (type) {
    case DType::bf16:
      return as("BF16", [](double x) { return to_bf16_nearest(static_cast<float>(x)); });
    case DType::f16:
      return as("F16", [](double x) { return to_f16_nearest(static_cast<float>(x)); });
    case DType::f64:
      return as("F64", [](double x) { return x; });
    case DType::f32:
      break;
  }
  return as("F32", [](double x) { return static_cast<float>(x); });
}

// What is written keeps its bytes until it is.
class Writer {
 public:
  void add(const std::string& name, const std::vector<int64_t>& shape, Encoded e) {
    data_.push_back(std::move(e));
    shapes_.push_back(shape);
    names_.push_back(name);
  }
  void write(const std::string& path, const std::map<std::string, std::string>& metadata) const {
    std::vector<io::TensorOut> out;
    for (size_t i = 0; i < data_.size(); ++i) {
      out.push_back(
          {names_[i], data_[i].dtype, shapes_[i], data_[i].bytes.data(), data_[i].bytes.size()});
    }
    io::write_safetensors(path, out, metadata);
  }

 private:
  std::vector<Encoded> data_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<std::string> names_;
};

Encoded whole_numbers(const std::vector<int32_t>& tokens) {
  const std::vector<int64_t> wide(tokens.begin(), tokens.end());
  Encoded e{"I64", std::vector<std::byte>(wide.size() * sizeof(int64_t))};
  if (!wide.empty()) std::memcpy(e.bytes.data(), wide.data(), e.bytes.size());
  return e;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(io::SafetensorsFile::open(path)) {
    for (const auto& [name, tensor] : file_.tensors()) {
      // Older files have the causal mask of each layer.
      if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) continue;
      const bool prefixed = name.starts_with(kPrefix);
      tensors_[prefixed ? name.substr(kPrefix.size()) : name] = &tensor;
    }
  }

  std::vector<std::vector<double>> parameters(const Model& model) {
    check_config(model.config());
    std::vector<std::vector<double>> all;
    for (size_t i = 0; i < model.size(); ++i) {
      const ParamSpec& s = model.spec(i);
      const io::TensorView& t = matching(s.name, their_shape(s));
      std::vector<double> values = decode(s.name, t);
      all.push_back(turned(s) ? transposed(values, s.shape[1], s.shape[0]) : std::move(values));
    }
    check_others(model);
    return all;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::invalid_file, fmt::format("{}: {}", path_, why));
  }

  const io::TensorView& matching(const std::string& name, const std::vector<int64_t>& shape) {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) {
      refuse(
          fmt::format("tensor '{}' is missing, expected the names of Hugging Face's GPT-2", name));
    }
    if (it->second->shape != shape) {
      refuse(fmt::format("tensor '{}' is [{}], expected [{}]", name,
                         fmt::join(it->second->shape, ", "), fmt::join(shape, ", ")));
    }
    return *it->second;
  }

  std::vector<double> decode(const std::string& name, const io::TensorView& t) const {
    std::vector<double> out;
    const auto from = [&](auto raw, auto convert) {
      raw.resize(t.bytes / sizeof(raw[0]));
      if (!raw.empty()) std::memcpy(raw.data(), t.data, t.bytes);
      out.resize(raw.size());
      std::transform(raw.begin(), raw.end(), out.begin(), convert);
      return out;
    };
    if (t.dtype == "F32") return from(std::vector<float>(), [](float x) { return x; });
    if (t.dtype == "F64") return from(std::vector<double>(), [](double x) { return x; });
    if (t.dtype == "F16") return from(std::vector<Half>(), [](Half x) { return from_f16(x); });
    if (t.dtype == "BF16") return from(std::vector<Half>(), [](Half x) { return from_bf16(x); });
    refuse(fmt::format("tensor '{}' is {}, expected F32, F16 or BF16", name, t.dtype));
  }

  // The head may be there too, as what it is tied to.
  void check_others(const Model& model) {
    if (const auto head = tensors_.find(kHead); head != tensors_.end()) {
      const io::TensorView& wte = *tensors_.at("wte.weight");
      const io::TensorView& t = *head->second;
      if (t.shape != wte.shape || decode(kHead, t) != decode("wte.weight", wte)) {
        refuse(fmt::format("{} differs from wte.weight, expected a tied head", kHead));
      }
      tensors_.erase(head);
    }
    for (size_t i = 0; i < model.size(); ++i) tensors_.erase(model.spec(i).name);
    if (!tensors_.empty()) {
      refuse(fmt::format("tensor '{}' is none of a GPT-2 with {} layers", tensors_.begin()->first,
                         model.config().layers));
    }
  }

  // Heads cannot be told from shapes, nor what is between the matrices.
  void check_config(const Config& c) const {
    json given;
    try {
      const auto it = file_.metadata().find("config");
      if (it != file_.metadata().end()) {
        given = json::parse(it->second);
      } else if (std::ifstream beside(fs::path(path_).parent_path() / kConfigFile); beside) {
        given = json::parse(beside);
      }
    } catch (const json::exception&) {
      refuse("its configuration is no JSON, expected that of a GPT-2");
    }
    if (!given.is_object()) return;
    const json ours = describe_gpt2(c);
    for (const char* key : {"model_type", "n_layer", "n_head", "n_embd", "n_positions",
                            "vocab_size", "activation_function", "layer_norm_epsilon"}) {
      if (!given.contains(key) || given[key] == ours[key]) continue;
      refuse(fmt::format("{} is {} in its configuration, expected {}", key, given[key].dump(),
                         ours[key].dump()));
    }
  }

  const std::string& path_;
  io::SafetensorsFile file_;
  std::map<std::string, const io::TensorView*> tensors_;
};

}  // namespace

void require_gpt2(const Config& c) {
  const auto need = [](bool ok, std::string_view what, std::string_view expected) {
    if (ok) return;
    throw Error(ErrorCode::unsupported,
                fmt::format("a model with {} has no place in Hugging Face's GPT-2, expected {}",
                            what, expected));
  };
  need(c.positions == Positions::learned, "rotary positions", "learned ones");
  need(c.norm == Norm::layer, "rms norms", "layer norms");
  need(c.activation == Activation::gelu, "swiglu", "gelu");
  need(c.biases, "no biases", "them");
  need(c.tied, "a head of its own", "a tied one");
}

void export_hugging_face(const std::string& path, const Model& model) {
  require_gpt2(model.config());
  Writer writer;
  for (size_t i = 0; i < model.size(); ++i) {
    const ParamSpec& s = model.spec(i);
    writer.add(s.name, their_shape(s), encode(theirs(s, model.values(i)), model.param(i).type));
  }
  const json config = describe_gpt2(model.config());
  writer.write(path, {{"format", "pt"}, {"config", config.dump()}});
  const fs::path beside = fs::path(path).parent_path() / kConfigFile;
  if (!fs::exists(beside)) io::write_file_atomically(beside.string(), config.dump(2) + "\n");
}

void import_hugging_face(const std::string& path, Model& model) {
  require_gpt2(model.config());
  const auto all = Reader(path).parameters(model);
  for (size_t i = 0; i < model.size(); ++i) model.set_values(i, all[i]);
}

void dump_hugging_face(const std::string& path, Model& model, const data::Batch& batch) {
  require_gpt2(model.config());
  const int64_t rows = model.options().batch, time = model.options().time;
  const int64_t vocabulary = model.config().vocabulary;
  const Tokens& on = model.upload(batch);
  std::vector<double> logits;
  for (int64_t row = 0; row < rows * time; ++row) {
    const std::vector<double> some = model.logits(on, row);
    logits.insert(logits.end(), some.begin(), some.end());
  }
  model.forward(on);
  model.backward(on);
  Writer writer;
  writer.add("tokens", {rows, time}, whole_numbers(batch.inputs));
  writer.add("targets", {rows, time}, whole_numbers(batch.targets));
  writer.add("logits", {rows, time, vocabulary}, encode(logits, DType::f32));
  writer.add("loss", {}, encode({model.loss()}, DType::f64));
  for (size_t i = 0; i < model.size(); ++i) {
    const ParamSpec& s = model.spec(i);
    writer.add("grad." + s.name, their_shape(s),
               encode(theirs(s, model.grad_values(i)), model.grad(i).type));
  }
  writer.write(path, {});
}

}  // namespace gallop::gpt
