// SPDX-License-Identifier: MIT
#include "gpt/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <string_view>

#include "gallop/error.h"
#include "gallop/version.h"
#include "io/safetensors.h"

namespace gallop::gpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "gallop.training";
constexpr const char* kVersion = "1";
constexpr const char* kSetting = "setting.";

std::string_view name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::f64:
      break;
  }
  return "F64";
}

std::string optimizer_prefix(const std::string& path) {
  return fs::path(path).filename().string() + ".optimizer.";
}

// What runs that were ended in the middle have left, and the state that was current before.
void remove_others(const std::string& path, const std::string& keep) {
  const std::string state = optimizer_prefix(path);
  const std::string temporary = fs::path(path).filename().string() + ".tmp.";
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fs::absolute(path).parent_path(), ignored)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.starts_with(state) || name.starts_with(temporary);
    if (ours && name != keep) fs::remove(entry.path(), ignored);
  }
}

// Looks at a whole file before anything changes.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(io::SafetensorsFile::open(path)) {}

  Checkpoint read(const Settings& expected) const {
    if (meta("format") != kFormat) {
      refuse(
          fmt::format("format is '{}', expected '{}' (a training run)", meta("format"), kFormat));
    }
    if (meta("version") != kVersion) {
      refuse(fmt::format("version is '{}', expected '{}'", meta("version"), kVersion));
    }
    Checkpoint c;
    for (const auto& [name, value] : expected) {
      const std::string& theirs = meta(kSetting + name);
      if (theirs != value) {
        throw Error(ErrorCode::invalid_file,
                    fmt::format("{} has {} {} and this run {}, expected the same to go on from it",
                                path_, name, theirs, value));
      }
      c.settings.emplace_back(name, theirs);
    }
    c.progress.step = number<int64_t>("step");
    c.progress.batches = number<int64_t>("batches");
    c.progress.loss = number<double>("loss");
    c.progress.smoothed = {number<double>("smoothed"), number<double>("smoothed_weight")};
    c.progress.validation = known("validation");
    c.progress.accuracy = known("accuracy");
    c.algorithms = meta("algorithms");
    if (c.progress.step < 0 || c.progress.batches < 0) {
      refuse(fmt::format("step {} and batch {}, expected 0 or more", c.progress.step,
                         c.progress.batches));
    }
    return c;
  }

  LossScale loss_scale() const {
    LossScale s;
    s.scale = number<float>("loss_scale");
    s.good_steps = number<int32_t>("good_steps");
    if (!(s.scale > 0) || std::isinf(s.scale) || s.good_steps < 0) {
      refuse(
          fmt::format("a loss scale of {} after {} good steps, expected more than 0, and 0 or "
                      "more",
                      s.scale, s.good_steps));
    }
    return s;
  }

  // Beside the file, wherever both were moved.
  std::string optimizer_file() const {
    const std::string& name = meta("optimizer_file");
    if (name.empty() || fs::path(name).filename() != name) {
      refuse(fmt::format("its optimizer's state is in '{}', expected the name of a file", name));
    }
    std::string at = (fs::path(path_).parent_path() / name).string();
    if (!fs::exists(at)) {
      refuse(fmt::format("its optimizer's state is in {}, which is not there, expected both files",
                         at));
    }
    return at;
  }

  std::vector<std::span<const std::byte>> parameters(const Model& model) const {
    std::vector<std::span<const std::byte>> all;
    for (size_t i = 0; i < model.size(); ++i) {
      const ParamSpec& spec = model.spec(i);
      const io::TensorView* t = file_.find(spec.name);
      if (t == nullptr) refuse(fmt::format("tensor '{}' is missing", spec.name));
      const std::string_view type = name_of(model.param(i).type);
      if (t->dtype != type || t->shape != spec.shape) {
        refuse(fmt::format("tensor '{}' is {} [{}], expected {} [{}]", spec.name, t->dtype,
                           fmt::join(t->shape, ", "), type, fmt::join(spec.shape, ", ")));
      }
      all.emplace_back(t->data, t->bytes);
    }
    if (file_.tensors().size() != model.size()) {
      refuse(fmt::format("it holds {} tensors, expected {}", file_.tensors().size(), model.size()));
    }
    return all;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::invalid_file, fmt::format("{}: {}", path_, why));
  }
  const std::string& meta(const std::string& key) const {
    const auto it = file_.metadata().find(key);
    if (it != file_.metadata().end()) return it->second;
    refuse(fmt::format("metadata '{}' is missing, expected a checkpoint of gallop train", key));
  }
  template <class T>
  T number(const std::string& key) const {
    const std::string& text = meta(key);
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
    refuse(fmt::format("metadata '{}' is '{}', expected a number", key, text));
  }

  std::optional<double> known(const std::string& key) const {
    if (!file_.metadata().contains(key)) return {};
    return number<double>(key);
  }

  const std::string& path_;
  io::SafetensorsFile file_;
};

}  // namespace

Settings settings_of(Trainer& trainer, const data::Corpus& corpus, uint64_t data_seed,
                     int64_t min_length) {
  const TrainerOptions& o = trainer.options();
  const Config& c = o.config;
  Settings all;
  const auto add = [&](const std::string& name, const auto& value) {
    all.emplace_back(name, fmt::format("{}", value));
  };
  add("model.layers", c.layers);
  add("model.heads", c.heads);
  add("model.width", c.width);
  add("model.hidden", c.hidden);
  add("model.vocabulary", c.vocabulary);
  add("model.context", c.context);
  add("model.norm", to_string(c.norm));
  add("model.activation", to_string(c.activation));
  add("model.positions", to_string(c.positions));
  add("model.biases", c.biases);
  add("model.tied", c.tied);
  add("model.epsilon", c.epsilon);
  add("data", corpus.fingerprint());
  add("data_seed", data_seed);
  add("batch", o.batch);
  add("context",
      min_length > 0 ? fmt::format("{} to {}", min_length, o.time) : fmt::format("{}", o.time));
  add("accumulation", o.accumulation);
  add("seed", o.seed);
  add("precision", to_string(o.compute));
  if (in_16_bits(o)) add("rounding", to_string(o.rounding));
  if (o.gradients) add("gradients", to_string(*o.gradients));
  add("optimizer", o.optimizer);
  if (Optimizer* optimizer = trainer.optimizer()) {
    for (const KnobInfo& knob : optimizer->rule().knobs) {
      add(knob.name, optimizer->get(0, knob.name));
    }
  }
  add("schedule", format(o.schedule));
  add("state", to_string(o.state));
  add("clip_norm", o.clip_norm);
  if (*o.loss_scale > 0) add("loss_scale", "yes");
  add("decay_vectors", o.decay_vectors);
  return all;
}

void save_checkpoint(const std::string& path, Trainer& trainer, const Checkpoint& c) {
  const std::string name = optimizer_prefix(path) + fmt::format("{}", c.progress.step);
  if (trainer.optimizer() == nullptr) {
    throw Error(ErrorCode::invalid_argument, "a checkpoint without an optimizer, expected one");
  }
  trainer.optimizer()->save((fs::path(path).parent_path() / name).string());

  const Progress& p = c.progress;
  std::map<std::string, std::string> metadata = {
      {"format", kFormat},
      {"version", kVersion},
      {"gallop", GALLOP_VERSION},
      {"step", fmt::format("{}", p.step)},
      {"batches", fmt::format("{}", p.batches)},
      {"loss", fmt::format("{}", p.loss)},  // {} is the shortest exact form
      {"smoothed", fmt::format("{}", p.smoothed.sum)},
      {"smoothed_weight", fmt::format("{}", p.smoothed.weight)},
      {"optimizer_file", name},
      {"algorithms", trainer.algorithms()}};
  if (p.validation) metadata["validation"] = fmt::format("{}", *p.validation);
  if (p.accuracy) metadata["accuracy"] = fmt::format("{}", *p.accuracy);
  if (const auto scale = trainer.loss_scale()) {
    metadata["loss_scale"] = fmt::format("{}", scale->scale);
    metadata["good_steps"] = fmt::format("{}", scale->good_steps);
  }
  for (const auto& [key, value] : c.settings) metadata[kSetting + key] = value;
  const Model& model = trainer.model();
  std::vector<std::vector<std::byte>> data;
  std::vector<io::TensorOut> tensors;
  for (size_t i = 0; i < model.size(); ++i) {
    data.push_back(trainer.download(model.param(i)));
    tensors.push_back({model.spec(i).name, std::string(name_of(model.param(i).type)),
                       model.spec(i).shape, data.back().data(), data.back().size()});
  }
  io::write_safetensors(path, tensors, metadata);
  remove_others(path, name);
}

Checkpoint load_checkpoint(const std::string& path, Trainer& trainer, const Settings& expected,
                           int64_t most_steps, bool other_libraries) {
  const Reader reader(path);
  Checkpoint c = reader.read(expected);
  if (c.progress.step > most_steps) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} steps in all, expected at least the {} that {} has behind it",
                            most_steps, c.progress.step, path));
  }
  Model& model = trainer.model();
  const auto parameters = reader.parameters(model);
  const auto scale = model.loss_scale() != nullptr ? reader.loss_scale() : LossScale();
  const std::string optimizer_file = reader.optimizer_file();
  try {
    trainer.set_algorithms(c.algorithms);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::unsupported) throw;
    if (!other_libraries) {
      throw Error(e.code(),
                  fmt::format("{}: {}; --other-libraries goes on with other bits", path, e.what()));
    }
  }
  // Masters and remainders are in the optimizer's file: parameters_changed() would make them anew.
  if (trainer.optimizer() != nullptr) trainer.optimizer()->load(optimizer_file);
  for (size_t i = 0; i < model.size(); ++i) trainer.upload(model.param(i), parameters[i]);
  if (model.loss_scale() != nullptr) trainer.set_loss_scale(scale.scale, scale.good_steps);
  remove_others(path, fs::path(optimizer_file).filename().string());
  return c;
}

}  // namespace gallop::gpt
