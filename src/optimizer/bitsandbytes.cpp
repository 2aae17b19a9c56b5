// SPDX-License-Identifier: MIT
// States under the names and in the layout of bitsandbytes: docs/checkpoints.md.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/quantise.h"
#include "gallop/convert.h"
#include "gallop/error.h"
#include "optimizer/checkpoint_file.h"

namespace gallop {
namespace {

using checkpoint::CheckpointFile;
using cpu::Storage;

constexpr const char* kFormat = "gallop.bitsandbytes";
constexpr double kMapTolerance = 1e-5;

// state1 has the signed map, state2 the other.
constexpr Storage kTheirs[] = {Storage::bnb8, Storage::bnb8_nonneg};

using Map = std::array<float, 256>;

Map map_of(Storage s) {
  Map map;
  for (size_t c = 0; c < map.size(); ++c) {
    const auto code = static_cast<Code>(c);
    map[c] = s == Storage::bnb8 ? from_dynamic(code) : from_dynamic_nonneg(code);
  }
  return map;
}

[[noreturn]] void unsupported(const std::string& what) {
  throw Error(ErrorCode::unsupported, what);
}

// How many states a rule keeps there: the first of its own.
size_t count_there(const std::string& rule) {
  if (rule == "adam" || rule == "adamw") return 2;
  for (const char* one : {"lion", "sgd", "rmsprop", "adagrad"}) {
    if (rule == one) return 1;
  }
  unsupported(
      fmt::format("{} in bitsandbytes: {}, expected adam, adamw, lion, sgd, rmsprop or "
                  "adagrad",
                  rule,
                  rule == "ademamix" ? "it keeps two averages in one tensor there"
                                     : "gallop does not know its states there"));
}

// How many each parameter of a checkpoint has there. Throws if it has others, too.
size_t states_there(const CheckpointFile& file) {
  const RuleInfo& rule = file.rule().info;
  const size_t count = count_there(rule.name);
  for (size_t g = 0; g < file.groups.size(); ++g) {
    for (size_t j = 0; j < rule.states.size(); ++j) {
      const bool kept = (file.groups[g].present >> j & 1) != 0;
      if (kept == (j < count)) continue;
      unsupported(fmt::format("group {}: {} {} {}, and in bitsandbytes {} {}", g, rule.name,
                              kept ? "keeps" : "without " + rule.states[j].when + " does not keep",
                              rule.states[j].name, rule.name, kept ? "does not" : "does"));
    }
  }
  for (const Slot& s : file.slots) {
    if (s.param.dtype != DType::f64) continue;
    unsupported(
        fmt::format("parameter '{}' has fp64 state, which bitsandbytes does not", s.param.name));
  }
  return count;
}

bool has_low_bits(const CheckpointFile& file) {
  return std::any_of(file.slots.begin(), file.slots.end(),
                     [](const Slot& s) { return s.tensor.low != nullptr; });
}

// A file with tensors under bitsandbytes' names.
class Theirs {
 public:
  explicit Theirs(const std::string& path) : file_(io::SafetensorsFile::open(path)) {}

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::invalid_file, fmt::format("{}: {}", file_.name(), why));
  }
  const io::SafetensorsFile& file() const { return file_; }

  const io::TensorView& get(const std::string& key) const {
    const io::TensorView* t = file_.find(key);
    if (t == nullptr) {
      refuse(
          fmt::format("tensor '{}' is missing, expected NAME.state1, NAME.step, ... for every "
                      "parameter of the template",
                      key));
    }
    return *t;
  }
  const io::TensorView& get(const std::string& key, const char* dtype,
                            const std::vector<int64_t>& shape) const {
    const io::TensorView& t = get(key);
    if (t.dtype != dtype || t.shape != shape) {
      refuse(fmt::format("tensor '{}' is {} [{}], expected {} [{}]", key, t.dtype,
                         fmt::join(t.shape, ", "), dtype, fmt::join(shape, ", ")));
    }
    return t;
  }

  void check_optimizer(const std::string& rule) const {
    const auto& about = file_.metadata();
    const auto format = about.find("format"), optimizer = about.find("optimizer");
    if (format == about.end() || format->second != kFormat || optimizer == about.end()) return;
    if (optimizer->second != rule) {
      refuse(fmt::format("it is of {}, and the template of {}", optimizer->second, rule));
    }
  }

  // Nothing in it may be left over.
  void check_names(const std::vector<Slot>& slots) const {
    constexpr std::string_view kState = ".state1";
    for (const auto& [key, tensor] : file_.tensors()) {
      if (!key.ends_with(kState)) continue;
      const std::string name = key.substr(0, key.size() - kState.size());
      if (std::any_of(slots.begin(), slots.end(),
                      [&](const Slot& s) { return s.param.name == name; })) {
        continue;
      }
      refuse(fmt::format("it has a parameter '{}', which the template does not", name));
    }
  }

  void check_map(const std::string& key, Storage storage) const {
    const io::TensorView& t = get(key, "F32", {256});
    const Map ours = map_of(storage);
    Map theirs;
    std::memcpy(theirs.data(), t.data, t.bytes);
    for (size_t c = 0; c < ours.size(); ++c) {
      const double a = ours[c], b = theirs[c];
      if (std::fabs(a - b) <= kMapTolerance * std::max(std::fabs(a), std::fabs(b))) continue;
      refuse(fmt::format("tensor '{}' has {} for code {}, expected {} as in the {} dynamic map",
                         key, theirs[c], c, ours[c],
                         storage == Storage::bnb8 ? "signed" : "unsigned"));
    }
  }

  const io::TensorView& absmax(const std::string& key, int64_t n) const {
    const int64_t blocks = scales_for(Storage::bnb8, n), before = (n + 2047) / 2048;
    const io::TensorView& t = get(key);
    if (t.shape == std::vector{before} && before != blocks) {
      refuse(
          fmt::format("tensor '{}' has one value for 2048 elements, as earlier versions of "
                      "bitsandbytes did, expected one for 256",
                      key));
    }
    return get(key, "F32", {blocks});
  }

 private:
  io::SafetensorsFile file_;
};

void read_state(const Theirs& theirs, CheckpointFile& ours, Slot& s, size_t j) {
  const std::string& name = s.param.name;
  const std::string key = fmt::format("{}.state{}", name, j + 1);
  const bool codes = theirs.get(key).dtype == "U8";
  const io::TensorView& t = theirs.get(key, codes ? "U8" : "F32", s.param.shape);
  if (!codes) return ours.put(s, j, Storage::f32, t.data, nullptr);
  theirs.check_map(fmt::format("{}.qmap{}", name, j + 1), kTheirs[j]);
  const io::TensorView& absmax = theirs.absmax(fmt::format("{}.absmax{}", name, j + 1), s.tensor.n);
  ours.put(s, j, kTheirs[j], t.data, absmax.data);
}

}  // namespace

Conversion to_bitsandbytes(const std::string& in, const std::string& out) {
  CheckpointFile file(in);
  const size_t count = states_there(file);
  const StatePolicy policy = StateFormat::bnb8;
  const Map maps[] = {map_of(kTheirs[0]), map_of(kTheirs[1])};
  std::vector<io::TensorOut> tensors;
  for (Slot& s : file.slots) {
    if (s.format != StateFormat::f32 && s.format != StateFormat::bnb8) {
      file.recode(s, policy.choose(s.param));
    }
    const cpu::Tensor& t = s.tensor;
    const auto add = [&](std::string_view what, const char* dtype,
                         const std::vector<int64_t>& shape, const void* data, int64_t bytes) {
      tensors.push_back({fmt::format("{}.{}", s.param.name, what), dtype, shape, data,
                         static_cast<size_t>(bytes)});
    };
    add("step", "I64", {}, &s.steps, sizeof s.steps);
    for (size_t j = 0; j < count; ++j) {
      const Storage storage = t.state_storage[j];
      const bool codes = is_quantised(storage);
      add(fmt::format("state{}", j + 1), codes ? "U8" : "F32", s.param.shape, t.state[j],
          bytes_for(storage, t.n));
      if (!codes) continue;
      const int64_t blocks = scales_for(storage, t.n);
      add(fmt::format("absmax{}", j + 1), "F32", {blocks}, t.scale[j], 4 * blocks);
      add(fmt::format("qmap{}", j + 1), "F32", {256}, maps[j].data(), sizeof(Map));
    }
  }
  io::write_safetensors(out, tensors, {{"format", kFormat}, {"optimizer", file.rule().info.name}});
  return {tensors.size(), file.bytes(), checkpoint::bytes_of(tensors), has_low_bits(file)};
}

Conversion from_bitsandbytes(const std::string& in, const std::string& like,
                             const std::string& out) {
  const Theirs theirs(in);
  CheckpointFile file(like);
  const size_t count = states_there(file);
  theirs.check_optimizer(file.rule().info.name);
  theirs.check_names(file.slots);
  for (Group& group : file.groups) {
    for (size_t i : group.slots) {
      Slot& s = file.slots[i];
      const std::string step = s.param.name + ".step";
      std::memcpy(&s.steps, theirs.get(step, "I64", {}).data, sizeof s.steps);
      if (s.steps < 0) theirs.refuse(fmt::format("{} is {}, expected 0 or more", step, s.steps));
      group.steps = std::max(i == group.slots.front() ? 0 : group.steps, s.steps);
      for (size_t j = 0; j < count; ++j) read_state(theirs, file, s, j);
    }
  }
  const auto written = file.write(out);
  return {written.size(), checkpoint::bytes_of(theirs.file()), checkpoint::bytes_of(written),
          has_low_bits(file)};
}

}  // namespace gallop
