// SPDX-License-Identifier: MIT
// Checkpoints of an optimizer.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "cuda/memory.h"
#include "gallop/error.h"
#include "io/safetensors.h"
#include "optimizer/checkpoint.h"

namespace gallop {
namespace {

using nlohmann::json;
using namespace checkpoint;

json describe_group(const Rule& rule, const Group& g, const std::vector<Slot>& slots) {
  json hyper, scalars = json::object(), params = json::array(), formats = json::array(),
              roles = json::array(), shapes = json::array();
  for (size_t k = 0; k < g.hyper.size(); ++k) hyper[rule.info.knobs[k].name] = g.hyper[k];
  if (rule.info.counts_per_group) {
    for (size_t j = 0; j < rule.info.scalars.size(); ++j) {
      scalars[rule.info.scalars[j]] = g.scalars[j];
    }
  }
  for (size_t i : g.slots) {
    params.push_back(slots[i].param.name);
    formats.push_back(to_string(slots[i].format));
    roles.push_back(to_string(slots[i].param.role));
    shapes.push_back(slots[i].param.shape);
  }
  return {{"hyper", hyper},
          {"schedule", format(g.options.schedule)},
          {"maximize", g.options.maximize},
          {"rounding", to_string(g.options.rounding)},
          {"state", to_string(g.options.state)},
          {"state_rounding", to_string(g.options.state_rounding)},
          {"step", g.steps},
          {"scalars", scalars},
          {"params", params},
          {"formats", formats},
          {"roles", roles},
          {"shapes", shapes}};
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
    int64_t skipped, not_finite;
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
      r.not_finite = about.value("not_finite", int64_t{0});
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
    // Files of earlier versions have one format for all.
    const char* formats = j.contains("formats") ? "formats" : "state";
    for (const char* key : {"params", "maximize", "rounding", formats, "state_rounding"}) {
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
  const json about = {{"skipped", m.skipped},
                      {"not_finite", m.not_finite + m.backend.not_finite()},
                      {"seed", m.options.seed},
                      {"evaluating", m.evaluating}};
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
  m.not_finite = r.not_finite;
  m.backend.set_not_finite(0);
  m.options.seed = r.seed;
  m.evaluating = r.evaluating;
  m.push();
}

}  // namespace gallop
