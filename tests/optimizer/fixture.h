// SPDX-License-Identifier: MIT
// Optimizers over several tensors of awkward sizes, and everything they hold as bytes to compare.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "check/data.h"
#include "check/reachable.h"
#include "check/sweep.h"
#include "folder.h"
#include "gallop/gallop.h"
#include "optimizer/rule.h"

namespace gallop::test {

using check::Buffer;
using check::Formats;

inline constexpr Formats kF32 = {DType::f32, DType::f32, Rounding::nearest, StateFormat::f32,
                                 Rounding::nearest};
inline constexpr Formats kF64 = {DType::f64, DType::f64, Rounding::nearest, StateFormat::f32,
                                 Rounding::nearest};

// GALLOP_TEST_DEVICE=cuda runs these tests on a GPU, with memory that both sides reach. Launches
// then wait, since the tests look right after a step.
inline Device test_device() {
  static const Device device = [] {
    const char* name = std::getenv("GALLOP_TEST_DEVICE");
    if (name == nullptr) return Device{};
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    return parse_device(name);
  }();
  return device;
}

// A rule with one choice of its optional states.
struct Variant {
  std::string name, rule;
  Hyper hyper;
};

// A rate that moves 16-bit parameters too, and decay, which most rules leave off.
inline Variant plain(const std::string& rule) {
  Variant v{rule, rule, {{"lr", 0.01}, {"weight_decay", 0.05}}};
  if (rule_info(rule).knob("relative_step") >= 0) v.hyper.emplace_back("relative_step", 0);
  if (rule == "lamb") v.hyper.emplace_back("max_grad_norm", 0);  // would join all parameters
  return v;
}

inline bool has_norms(const Variant& v) { return !find_rule(v.rule).passes.empty(); }

// A matrix, or several, where the number of elements allows.
inline std::vector<int64_t> shape_of(int64_t n) {
  if (n == 256) return {16, 16};
  if (n == 255) return {3, 5, 17};
  if (n == 1003) return {17, 59};
  if (n == 200000) return {800, 250};
  if (n == 5120) return {20, 256};  // rows that states may share scales in
  if (n == 4608) return {3, 6, 256};
  return {n};
}

// Rules over matrices refuse a vector that does not say what it is.
inline Role role_of(const std::vector<int64_t>& shape) {
  return shape.size() < 2 ? Role::bias : Role::hidden;
}

// The library's own, whatever files other tests of this process have loaded.
inline std::vector<std::string> own_rules() {
  std::vector<std::string> names;
  for (const std::string& rule : rule_names()) {
    if (!find_rule(rule).from_file) names.push_back(rule);
  }
  return names;
}

// Every rule, with every subset of its optional states.
inline std::vector<Variant> variants() {
  std::vector<Variant> out;
  for (const std::string& rule : own_rules()) {
    std::vector<Variant> of_rule = {plain(rule)};
    for (const StateInfo& state : rule_info(rule).states) {
      if (state.when.empty()) continue;
      const size_t without = of_rule.size();
      for (size_t i = 0; i < without; ++i) {
        Variant with = of_rule[i];
        with.name += "+" + state.when;
        const int knob = rule_info(rule).knob(state.when);
        const bool flag = rule_info(rule).knobs[static_cast<size_t>(knob)].whole;
        with.hyper.emplace_back(state.when, flag ? 1 : 0.9);
        of_rule.push_back(with);
      }
    }
    out.insert(out.end(), of_rule.begin(), of_rule.end());
  }
  return out;
}

inline constexpr Mode kModes[] = {Mode::unfused, Mode::single, Mode::multi};

inline bool shares_scales(StateFormat f) { return f != StateFormat::f32 && f != StateFormat::bf16; }

// Every format of parameters with every format of states, gradient formats taken in turn; of states
// that share scales, every other combination that is checked.
inline std::vector<Formats> formats() {
  std::vector<Formats> out;
  size_t k = 0, shared = 0;
  for (const Formats& f : check::all_formats()) {
    if (f.param == DType::f64) {
      out.push_back(f);
    } else if (shares_scales(f.state)) {
      if (shared++ % 2 == 0) out.push_back(f);
    } else {
      // Nine in a row share the parameter's format: three gradients by three states.
      const size_t param = k / 9, grad = k / 3 % 3, state = k % 3;
      if ((param + state) % 3 == grad) out.push_back(f);
      ++k;
    }
  }
  return out;
}

inline constexpr StateFormat kShared[] = {StateFormat::q8, StateFormat::bnb8, StateFormat::q4,
                                          StateFormat::fp8};

inline bool has_entry(const Optimizer& o, std::string_view entry) {
  for (const std::string& e : o.rule().entries) {
    if (e == entry) return true;
  }
  return false;
}

// The bytes of all parameters, masters, remainders and states, and the step counts.
struct Snapshot {
  std::vector<std::pair<std::string, std::vector<std::byte>>> parts;

  void add(std::string what, const void* data, size_t bytes) {
    parts.emplace_back(std::move(what), bytes);
    if (bytes > 0) std::memcpy(parts.back().second.data(), data, bytes);
  }
};

// What differs first; empty when nothing does.
inline std::string difference(const Snapshot& a, const Snapshot& b) {
  if (a.parts.size() != b.parts.size()) return "number of parts";
  for (size_t i = 0; i < a.parts.size(); ++i) {
    const auto& [name, x] = a.parts[i];
    const auto& [other_name, y] = b.parts[i];
    if (name != other_name || x.size() != y.size()) return name + " against " + other_name;
    for (size_t k = 0; k < x.size(); ++k) {
      if (x[k] != y[k]) return name + " byte " + std::to_string(k);
    }
  }
  return "";
}

inline Options on_device(Options o, Device device) {
  o.device = device;
  if (o.device.kind == Device::Kind::cuda) o.allocator = check::reachable_allocator(o.device);
  return o;
}

inline Options one_thread() {
  Options o;
  o.threads = 1;
  return o;
}

struct Plan {
  Variant variant;
  Formats formats = kF32;
  Options options = one_thread();
  GroupOptions group = {};  // hyper and formats come from above
  std::string policy = {};  // of states, instead of one format for all
  std::vector<std::vector<int64_t>> sizes = {{0, 1, 255, 256}, {257, 1003}};
  Device device = test_device();
};

// An optimizer with its memory. The second group has half the rate of the first; every other
// tensor starts one element past a 64-byte boundary.
class World {
 public:
  explicit World(const Plan& s)
      : optimizer(s.variant.rule, on_device(s.options, s.device)), formats_(s.formats) {
    for (size_t g = 0; g < s.sizes.size(); ++g) {
      std::vector<Param> added;
      for (int64_t n : s.sizes[g]) {
        const bool unaligned = params.size() % 2 == 1;
        Buffer& p = params.emplace_back(s.formats.param, n, unaligned, s.device);
        Buffer& d = grads.emplace_back(s.formats.grad, n, unaligned, s.device);
        p.fill_normal(params.size(), 1);
        added.push_back({std::string("p").append(std::to_string(params.size() - 1)), shape_of(n),
                         p.data(), d.data(), s.formats.param, s.formats.grad,
                         role_of(shape_of(n))});
      }
      GroupOptions group = s.group;
      group.hyper = s.variant.hyper;
      group.rounding = s.formats.rounding;
      group.state =
          s.policy.empty() ? StatePolicy::all(s.formats.state) : parse_state_policy(s.policy);
      group.state_rounding = s.formats.state_rounding;
      optimizer.add_group(added, group);
      if (g > 0) optimizer.set(g, "lr", optimizer.get(g, "lr") / 2);
    }
  }

  void fill_grads(uint64_t seed, double scale = 0.1) {
    for (size_t i = 0; i < grads.size(); ++i) grads[i].fill_normal(1000 * (seed + 1) + i, scale);
  }
  void give_grad(size_t i) { optimizer.set_grad(i, grads[i].data()); }
  void take_grad(size_t i) { optimizer.set_grad(i, nullptr); }

  // One update by each of the rule's entries.
  void step_all_entries() {
    optimizer.step();
    if (has_entry(optimizer, "hessian")) optimizer.run("hessian");
    optimizer.eval();
    optimizer.train();
  }

  Snapshot snapshot() const {
    Snapshot s;
    for (size_t i = 0; i < params.size(); ++i) add_param(s, i);
    return s;
  }
  // Of one parameter, under a name that does not tell which.
  Snapshot snapshot_of(size_t i) const {
    Snapshot s;
    add_param(s, i);
    for (auto& [what, bytes] : s.parts) what = what.substr(what.find('.'));
    return s;
  }
  Snapshot grad_snapshot() const {
    Snapshot s;
    for (const Buffer& d : grads) {
      s.add("grad", d.data(), static_cast<size_t>(d.size()) * size_of(d.type()));
    }
    return s;
  }
  bool guards_intact() const {
    for (const Buffer& b : params) {
      if (!b.guards_intact()) return false;
    }
    for (const Buffer& b : grads) {
      if (!b.guards_intact()) return false;
    }
    return true;
  }

  std::vector<Buffer> params, grads;
  Optimizer optimizer;

 private:
  void add_param(Snapshot& s, size_t i) const {
    const Buffer& p = params[i];
    const auto n = static_cast<size_t>(p.size());
    const std::string name = optimizer.param(i).name;
    s.add(name + ".data", p.data(), n * size_of(p.type()));
    if (const void* low = optimizer.low_bits(i)) {
      s.add(name + ".low", low, n * (formats_.rounding == Rounding::master ? 4 : 2));
    }
    for (const StateView& v : optimizer.states(i)) {
      s.add(name + "." + v.name, v.data, static_cast<size_t>(v.bytes));
      if (v.block == 0) continue;
      const auto scales = static_cast<size_t>(v.scale_count());
      s.add(name + "." + v.name + ".absmax", v.scales, scales * sizeof(float));
    }
    const int64_t steps = optimizer.steps(i);
    s.add(name + ".steps", &steps, sizeof steps);
  }

  Formats formats_;
};

// Steps of a plan in a mode, by every entry of its rule.
inline Snapshot after_steps(Plan plan, Mode mode, int steps = 2) {
  plan.options.mode = mode;
  World w(plan);
  for (int k = 0; k < steps; ++k) {
    w.fill_grads(static_cast<uint64_t>(k));
    w.step_all_entries();
    check::wait_for(plan.device);
  }
  EXPECT_TRUE(w.guards_intact());
  return w.snapshot();
}

inline void copy_bytes(Buffer& to, const Buffer& from) {
  ASSERT_EQ(to.size(), from.size());
  if (to.size() > 0) {
    std::memcpy(to.data(), from.data(), static_cast<size_t>(to.size()) * size_of(to.type()));
  }
}
inline void copy_bytes(std::vector<Buffer>& to, const std::vector<Buffer>& from) {
  ASSERT_EQ(to.size(), from.size());
  for (size_t i = 0; i < to.size(); ++i) copy_bytes(to[i], from[i]);
}

// The action throws gallop::Error with this code and all these parts in its message.
template <class Action>
void expect_error(ErrorCode code, std::initializer_list<std::string_view> parts, Action action) {
  try {
    action();
    ADD_FAILURE() << "accepted" << (parts.size() > 0 ? ", expected a message with: " : "")
                  << (parts.size() > 0 ? *parts.begin() : "");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    for (std::string_view part : parts) {
      EXPECT_NE(std::string_view(e.what()).find(part), std::string_view::npos)
          << "'" << part << "' is not in: " << e.what();
    }
  } catch (const std::exception& e) {
    ADD_FAILURE() << "not a gallop::Error: " << e.what();
  }
}

}  // namespace gallop::test
