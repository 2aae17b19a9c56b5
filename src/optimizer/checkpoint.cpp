// SPDX-License-Identifier: MIT
// Checkpoints. The key scheme is documented in docs/checkpoints.md.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "cuda/memory.h"
#include "gallop/error.h"
#include "io/safetensors.h"
#include "optimizer/impl.h"

namespace gallop {
namespace {

using cpu::Storage;
using nlohmann::json;

constexpr const char* kFormat = "gallop.optimizer";
constexpr const char* kVersion = "1";

struct Field {  // one tensor of a checkpoint and where it lives in memory
  std::string key;
  std::string dtype;
  std::vector<int64_t> shape;
  void* data;
  size_t bytes;
};

const char* dtype_name(Storage s) {
  return s == Storage::f64 ? "F64" : s == Storage::f32 ? "F32" : "BF16";
}

std::string key_of(const Slot& s, std::string_view what) {
  return fmt::format("state.{}.{}", s.param.name, what);
}

// A state per row lacks the last dimension, one per column the last but one. One per pair of rows
// or columns is a square.
std::vector<int64_t> state_shape(const RuleInfo& rule, const StateInfo& s, const View& view,
                                 std::vector<int64_t> shape) {
  if (s.per == StatePer::element) return shape;
  if (s.per == StatePer::row_pair) return {view.batches, view.rows, view.rows};
  if (s.per == StatePer::column_pair) return {view.batches, view.columns, view.columns};
  const auto left_out = shape.end() - (s.per == StatePer::row ? 1 : 2);
  rule.keeps_dims ? void(*left_out = 1) : void(shape.erase(left_out));
  return shape;
}

// The arrays of a slot.
std::vector<Field> arrays_of(const Rule& rule, const Slot& s) {
  std::vector<Field> out;
  const auto add = [&](std::string_view what, const char* dtype, void* data,
                       const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    out.push_back(
        {key_of(s, what), dtype, shape, data, static_cast<size_t>(n) * io::dtype_size(dtype)});
  };
  for (size_t j = 0; j < rule.info.states.size(); ++j) {
    if ((s.tensor.present >> j & 1) != 0 && !rule.info.states[j].scratch) {
      add(rule.info.states[j].name, dtype_name(s.tensor.state_storage[j]), s.tensor.state[j],
          state_shape(rule.info, rule.info.states[j], s.tensor.view, s.param.shape));
    }
  }
  if (s.tensor.param_storage == Storage::bf16_remainder) {
    add("remainder", "I16", s.tensor.low, s.param.shape);
  } else if (s.tensor.low != nullptr) {
    add("master", "F32", s.tensor.low, s.param.shape);
  }
  return out;
}

// The scalars of a slot.
std::vector<Field> scalars_of(const Rule& rule, Slot& s) {
  std::vector<Field> out = {{key_of(s, "step"), "I64", {}, &s.steps, sizeof s.steps}};
  if (rule.info.counts_per_group) return out;
  for (size_t j = 0; j < rule.info.scalars.size(); ++j) {
    out.push_back({key_of(s, rule.info.scalars[j]), "F64", {}, &s.scalars[j], sizeof(double)});
  }
  return out;
}

json describe_group(const Rule& rule, const Group& g, const std::vector<Slot>& slots) {
  json hyper, scalars = json::object(), params = json::array();
  for (size_t k = 0; k < g.hyper.size(); ++k) hyper[rule.info.knobs[k].name] = g.hyper[k];
  if (rule.info.counts_per_group) {
    for (size_t j = 0; j < rule.info.scalars.size(); ++j) {
      scalars[rule.info.scalars[j]] = g.scalars[j];
    }
  }
  for (size_t i : g.slots) params.push_back(slots[i].param.name);
  return {{"hyper", hyper},
          {"schedule", format(g.options.schedule)},
          {"maximize", g.options.maximize},
          {"rounding", to_string(g.options.rounding)},
          {"state", to_string(g.options.state)},
          {"state_rounding", to_string(g.options.state_rounding)},
          {"step", g.steps},
          {"scalars", scalars},
          {"params", params}};
}

// Reads and checks a whole file before anything in memory changes.
class Reader {
 public:
  Reader(const std::string& path, const Optimizer::Impl& m)
      : path_(path), m_(m), file_(io::SafetensorsFile::open(path)) {}

  struct Restored {
    std::vector<Group> groups;  // hyper, schedule, steps and scalars only
    std::vector<Slot> slots;    // steps and scalars only
    std::vector<std::pair<Field, const std::byte*>> arrays;
    int64_t skipped;
    uint64_t seed;
    bool evaluating;
  };

  Restored read() {
    expect("format", kFormat, "a gallop optimizer checkpoint");
    expect("version", kVersion, "this version of the format");
    expect("optimizer", m_.rule.info.name, "this optimizer");
    Restored r;
    try {
      const json about = json::parse(meta("state"));
      r.skipped = about.at("skipped").get<int64_t>();
      if (r.skipped < 0) refuse(fmt::format("skipped is {}, expected 0 or more", r.skipped));
      r.seed = about.at("seed").get<uint64_t>();
      r.evaluating = about.at("evaluating").get<bool>();
      read_groups(json::parse(meta("groups")), r);
    } catch (const json::exception& e) {
      refuse(fmt::format("its metadata is damaged ({})", e.what()));
    } catch (const Error& e) {
      if (e.code() == ErrorCode::invalid_file) throw;
      refuse(e.what());  // a hyper-parameter or schedule out of range
    }
    read_slots(r);
    return r;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::invalid_file, fmt::format("{}: {}", path_, why));
  }
  const std::string& meta(const std::string& key) const {
    const auto it = file_.metadata().find(key);
    if (it == file_.metadata().end()) {
      refuse(fmt::format("metadata '{}' is missing, expected a gallop optimizer checkpoint", key));
    }
    return it->second;
  }
  void expect(const std::string& key, std::string_view value, std::string_view what) const {
    if (meta(key) != value) {
      refuse(fmt::format("{} is '{}', expected '{}' ({})", key, meta(key), value, what));
    }
  }

  void read_groups(const json& groups, Restored& r) const {
    if (groups.size() != m_.groups.size()) {
      refuse(
          fmt::format("it has {} groups, this optimizer has {}", groups.size(), m_.groups.size()));
    }
    for (size_t g = 0; g < groups.size(); ++g) r.groups.push_back(read_group(groups.at(g), g));
  }

  Group read_group(const json& j, size_t index) const {
    const Group& here = m_.groups[index];
    const json mine = describe_group(m_.rule, here, m_.slots);
    for (const char* key : {"params", "maximize", "rounding", "state", "state_rounding"}) {
      if (j.at(key) != mine[key]) {
        refuse(fmt::format("group {}: {} is {}, this optimizer has {}", index, key,
                           shortened(j.at(key)), shortened(mine[key])));
      }
    }
    Group g;
    g.options.schedule = parse_schedule(j.at("schedule").get<std::string>());
    g.steps = j.at("step").get<int64_t>();
    if (g.steps < 0) refuse(fmt::format("group {}: step is {}", index, g.steps));
    for (const KnobInfo& k : m_.rule.info.knobs) {
      g.hyper.push_back(j.at("hyper").at(k.name).get<double>());
      m_.check_value(g.hyper.size() - 1, g.hyper.back());
    }
    m_.check_together(g.hyper);
    check_states(g, here, index);
    if (m_.rule.info.counts_per_group) {
      for (size_t k = 0; k < m_.rule.info.scalars.size(); ++k) {
        g.scalars[k] = j.at("scalars").at(m_.rule.info.scalars[k]).get<double>();
      }
    }
    return g;
  }

  void check_states(const Group& there, const Group& here, size_t index) const {
    const unsigned differ = m_.rule.present_states(there.hyper.data()) ^ here.present;
    for (size_t j = 0; j < m_.rule.info.states.size(); ++j) {
      if (!(differ >> j & 1)) continue;
      const StateInfo& s = m_.rule.info.states[j];
      const auto knob = static_cast<size_t>(m_.rule.info.knob(s.when));
      refuse(fmt::format("group {}: {} is {}, this optimizer has {}, and only one of them keeps {}",
                         index, s.when, there.hyper[knob], here.hyper[knob], s.name));
    }
  }

  static std::string shortened(const json& j) {
    const std::string text = j.dump();
    return text.size() <= 120 ? text : text.substr(0, 117) + "...";
  }

  void read_slots(Restored& r) const {
    size_t expected = 0;
    for (const Slot& here : m_.slots) {
      Slot s;
      s.param.name = here.param.name;
      for (const Field& f : scalars_of(m_.rule, s)) {
        std::memcpy(f.data, matching(f).data, f.bytes);
        ++expected;
      }
      if (s.steps < 0) refuse(fmt::format("{} is {}", key_of(here, "step"), s.steps));
      for (const Field& f : arrays_of(m_.rule, here)) {
        r.arrays.emplace_back(f, matching(f).data);
        ++expected;
      }
      r.slots.push_back(std::move(s));
    }
    if (file_.tensors().size() != expected) {
      refuse(fmt::format("it holds {} tensors, expected {}", file_.tensors().size(), expected));
    }
  }

  const io::TensorView& matching(const Field& f) const {
    const io::TensorView* t = file_.find(f.key);
    if (t == nullptr) refuse(fmt::format("tensor '{}' is missing", f.key));
    if (t->dtype != f.dtype || t->shape != f.shape) {
      refuse(fmt::format("tensor '{}' is {} [{}], expected {} [{}]", f.key, t->dtype,
                         fmt::join(t->shape, ", "), f.dtype, fmt::join(f.shape, ", ")));
    }
    return *t;
  }

  const std::string& path_;
  const Optimizer::Impl& m_;
  io::SafetensorsFile file_;
};

}  // namespace

void Optimizer::save(const std::string& path) const {
  Impl& m = *impl_;
  if (m.in_step) {
    throw Error(ErrorCode::invalid_argument, "save was called between begin_step and end_step");
  }
  m.pull();
  json groups = json::array();
  for (const Group& g : m.groups) groups.push_back(describe_group(m.rule, g, m.slots));
  const json about = {
      {"skipped", m.skipped}, {"seed", m.options.seed}, {"evaluating", m.evaluating}};
  std::vector<io::TensorOut> tensors;
  std::vector<std::vector<std::byte>> from_device;
  for (Slot& s : m.slots) {
    for (const Field& f : scalars_of(m.rule, s)) {
      tensors.push_back({f.key, f.dtype, f.shape, f.data, f.bytes});
    }
    for (const Field& f : arrays_of(m.rule, s)) {
      const void* data = f.data;
      if (m.cuda && f.bytes > 0) {
        from_device.emplace_back(f.bytes);
        cuda::copy_to_host(m.options.device.index, from_device.back().data(), f.data, f.bytes);
        data = from_device.back().data();
      }
      tensors.push_back({f.key, f.dtype, f.shape, data, f.bytes});
    }
  }
  try {
    io::write_safetensors(path, tensors,
                          {{"format", kFormat},
                           {"version", kVersion},
                           {"optimizer", m.rule.info.name},
                           {"state", about.dump()},
                           {"groups", groups.dump()}});
  } catch (const json::exception&) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: a parameter's name is not UTF-8, expected names that are", path));
  }
}

void Optimizer::load(const std::string& path) {
  Impl& m = *impl_;
  if (m.in_step) {
    throw Error(ErrorCode::invalid_argument, "load was called between begin_step and end_step");
  }
  Reader reader(path, m);
  Reader::Restored r = reader.read();
  // Nothing below throws, unless a GPU fails.
  for (const auto& [field, from] : r.arrays) {
    if (field.bytes == 0) continue;
    m.cuda ? cuda::copy_to_device(m.options.device.index, field.data, from, field.bytes)
           : void(std::memcpy(field.data, from, field.bytes));
  }
  for (size_t i = 0; i < m.slots.size(); ++i) {
    m.slots[i].steps = r.slots[i].steps;
    m.slots[i].scalars = r.slots[i].scalars;
  }
  for (size_t g = 0; g < m.groups.size(); ++g) {
    m.groups[g].hyper.swap(r.groups[g].hyper);
    m.groups[g].options.schedule = r.groups[g].options.schedule;
    m.groups[g].steps = r.groups[g].steps;
    m.groups[g].scalars = r.groups[g].scalars;
  }
  m.skipped = r.skipped;
  m.options.seed = r.seed;
  m.evaluating = r.evaluating;
  m.push();
}

}  // namespace gallop
