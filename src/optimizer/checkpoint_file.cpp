// SPDX-License-Identifier: MIT
#include "optimizer/checkpoint_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <set>

#include "gallop/error.h"

namespace gallop::checkpoint {
namespace {

using cpu::Storage;
using nlohmann::json;

bool is_bf16(Storage s) { return s == Storage::bf16_nearest || s == Storage::bf16_stochastic; }

// Whether the same bytes mean the same.
bool alike(Storage a, Storage b) { return a == b || (is_bf16(a) && is_bf16(b)); }

// Values change format once, so there is nothing that rounding at random would even out.
Storage rounded(Storage s) { return is_bf16(s) ? Storage::bf16_nearest : s; }

std::vector<double> aligned(const void* data, size_t bytes) {
  std::vector<double> out((bytes + sizeof(double) - 1) / sizeof(double));
  if (bytes > 0) std::memcpy(out.data(), data, bytes);
  return out;
}

}  // namespace

int64_t bytes_of(const std::vector<io::TensorOut>& tensors) {
  int64_t sum = 0;
  for (const io::TensorOut& t : tensors) sum += static_cast<int64_t>(t.bytes);
  return sum;
}

int64_t bytes_of(const io::SafetensorsFile& file) {
  int64_t sum = 0;
  for (const auto& [key, t] : file.tensors()) sum += static_cast<int64_t>(t.bytes);
  return sum;
}

CheckpointFile::CheckpointFile(const std::string& path) : file_(io::SafetensorsFile::open(path)) {
  if (meta("format") != kFormat) {
    refuse(fmt::format("format is '{}', expected '{}'", meta("format"), kFormat));
  }
  if (meta("version") != kVersion) {
    refuse(fmt::format("version is '{}', expected '{}'", meta("version"), kVersion));
  }
  try {
    rule_ = &find_rule(meta("optimizer"));
    described_ = json::parse(meta("groups"));
    for (const json& group : described_) read_group(group);
  } catch (const json::exception& e) {
    refuse(fmt::format("its metadata is damaged ({})", e.what()));
  } catch (const Error& e) {
    if (e.code() == ErrorCode::invalid_file) throw;
    refuse(e.what());
  }
  std::set<std::string> names;
  size_t expected = 0;
  for (Slot& s : slots) {
    if (!names.insert(s.param.name).second) {
      refuse(fmt::format("two parameters are named '{}'", s.param.name));
    }
    expected += scalars_of(rule(), s).size() + arrays_of(rule(), s).size();
  }
  if (file_.tensors().size() != expected) {
    refuse(fmt::format("it holds {} tensors, expected {}", file_.tensors().size(), expected));
  }
}

void CheckpointFile::refuse(const std::string& why) const {
  throw Error(ErrorCode::invalid_file, fmt::format("{}: {}", file_.name(), why));
}

const std::string& CheckpointFile::meta(const std::string& key) const {
  const auto it = file_.metadata().find(key);
  if (it == file_.metadata().end()) {
    refuse(fmt::format("metadata '{}' is missing, expected a gallop optimizer checkpoint", key));
  }
  return it->second;
}

void CheckpointFile::read_group(const json& described) {
  Group& group = groups.emplace_back();
  for (const KnobInfo& k : rule().info.knobs) {
    group.hyper.push_back(described.at("hyper").at(k.name).get<double>());
  }
  group.present = rule().present_states(group.hyper.data());
  group.steps = described.at("step").get<int64_t>();
  if (group.steps < 0) refuse(fmt::format("group {}: step is {}", groups.size() - 1, group.steps));
  group.options.state_rounding = parse_rounding(described.at("state_rounding").get<std::string>());
  for (size_t i = 0; i < described.at("params").size(); ++i) {
    group.slots.push_back(slots.size());
    slots.push_back(read_slot(described, i, group));
  }
}

// Of a file that does not say it. Nothing there is in a format that would not show it.
std::vector<int64_t> CheckpointFile::shape_in_file(const std::string& name) const {
  const io::TensorView *row = nullptr, *column = nullptr;
  for (const StateInfo& s : rule().info.states) {
    const io::TensorView* t = file_.find(fmt::format("state.{}.{}", name, s.name));
    if (t == nullptr) continue;
    if (s.per == StatePer::element) return t->shape;
    if (s.per == StatePer::row) row = t;
    if (s.per == StatePer::column) column = t;
  }
  if (row == nullptr || column == nullptr || row->shape.empty() || column->shape.empty()) {
    refuse(
        fmt::format("parameter '{}' has no state, and a file of an earlier version does not "
                    "say its shape otherwise",
                    name));
  }
  std::vector<int64_t> shape = row->shape;
  if (rule().info.keeps_dims) shape.pop_back();
  shape.push_back(column->shape.back());
  return shape;
}

Slot CheckpointFile::read_slot(const json& described, size_t i, Group& group) const {
  Slot s;
  s.group = groups.size() - 1;
  s.param.name = described.at("params").at(i).get<std::string>();
  const bool told = described.contains("formats");
  if (told) {
    s.format = parse_state_format(described["formats"].at(i).get<std::string>());
    s.param.role = parse_role(described.at("roles").at(i).get<std::string>());
    s.param.shape = described.at("shapes").at(i).get<std::vector<int64_t>>();
  } else {
    s.format = parse_state_format(described.at("state").get<std::string>());
    s.param.shape = shape_in_file(s.param.name);
  }
  for (const StateInfo& state : rule().info.states) {
    const io::TensorView* t = file_.find(key_of(s, state.name));
    if (t != nullptr && t->dtype == "F64") s.param.dtype = DType::f64;
  }
  choose_states(rule(), group, s, {});
  for (const char* low : {"master", "remainder"}) {
    const io::TensorView* t = file_.find(key_of(s, low));
    if (t == nullptr) continue;
    s.tensor.low = const_cast<std::byte*>(t->data);
    if (low == std::string_view("remainder")) s.tensor.param_storage = Storage::bf16_remainder;
  }

  const auto matching = [&](const Field& f) {
    const io::TensorView* t = file_.find(f.key);
    if (t == nullptr) {
      refuse(fmt::format("tensor '{}' is missing{}", f.key,
                         told ? ""
                              : " (files of earlier versions do not say roles: load this one into "
                                "its optimizer and save it again)"));
    }
    if (t->dtype != f.dtype || t->shape != f.shape) {
      refuse(fmt::format("tensor '{}' is {} [{}], expected {} [{}]", f.key, t->dtype,
                         fmt::join(t->shape, ", "), f.dtype, fmt::join(f.shape, ", ")));
    }
    return const_cast<std::byte*>(t->data);
  };
  for (const Field& f : scalars_of(rule(), s)) std::memcpy(f.data, matching(f), f.bytes);
  if (s.steps < 0) refuse(fmt::format("{} is {}", key_of(s, "step"), s.steps));
  for (const Field& f : arrays_of(rule(), s)) {
    void* data = matching(f);
    for (size_t j = 0; j < rule().info.states.size(); ++j) {
      const std::string& name = rule().info.states[j].name;
      if (f.key == key_of(s, name)) s.tensor.state[j] = data;
      if (f.key == key_of(s, name + ".absmax")) s.tensor.scale[j] = static_cast<float*>(data);
    }
  }
  return s;
}

void* CheckpointFile::make(size_t bytes) {
  return made_.emplace_back(std::make_unique<std::byte[]>(bytes)).get();
}

void CheckpointFile::put(Slot& slot, size_t j, Storage from, const void* data, const void* scales) {
  cpu::Tensor& t = slot.tensor;
  const Storage to = t.state_storage[j];
  if (alike(from, to)) {
    t.state[j] = const_cast<void*>(data);
    t.scale[j] = static_cast<float*>(const_cast<void*>(scales));
    return;
  }
  const int64_t n = state_elements(t.view, t.n, rule().info.states[j]);
  const auto codes = aligned(data, static_cast<size_t>(bytes_for(from, n)));
  const auto absmax = aligned(scales, static_cast<size_t>(4 * scales_for(from, n)));
  t.state[j] = make(static_cast<size_t>(bytes_for(to, n)));
  t.scale[j] = static_cast<float*>(make(static_cast<size_t>(4 * scales_for(to, n))));
  encode(rounded(to), decoded(from, codes.data(), absmax.data(), n), t.state[j], t.scale[j]);
}

void CheckpointFile::recode(Slot& slot, StateFormat format) {
  const cpu::Tensor before = slot.tensor;
  slot.format = format;
  choose_states(rule(), groups[slot.group], slot, {});
  for (size_t j = 0; j < rule().info.states.size(); ++j) {
    if ((before.present >> j & 1) == 0 || rule().info.states[j].scratch) continue;
    put(slot, j, before.state_storage[j], before.state[j], before.scale[j]);
  }
}

void CheckpointFile::set_policy(const StatePolicy& policy) {
  for (json& group : described_) group["state"] = to_string(policy);
}

std::vector<io::TensorOut> CheckpointFile::write(const std::string& path) {
  std::vector<io::TensorOut> tensors;
  for (Slot& s : slots) {
    for (const auto& fields : {scalars_of(rule(), s), arrays_of(rule(), s)}) {
      for (const Field& f : fields) tensors.push_back({f.key, f.dtype, f.shape, f.data, f.bytes});
    }
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    json formats = json::array(), roles = json::array(), shapes = json::array();
    for (size_t i : groups[g].slots) {
      formats.push_back(to_string(slots[i].format));
      roles.push_back(to_string(slots[i].param.role));
      shapes.push_back(slots[i].param.shape);
    }
    described_[g]["step"] = groups[g].steps;
    described_[g]["formats"] = formats;
    described_[g]["roles"] = roles;
    described_[g]["shapes"] = shapes;
  }
  auto metadata = file_.metadata();
  metadata["groups"] = described_.dump();
  io::write_safetensors(path, tensors, metadata);
  return tensors;
}

}  // namespace gallop::checkpoint
