// SPDX-License-Identifier: MIT
#include "gallop/optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "cuda/memory.h"
#include "gallop/error.h"
#include "optimizer/impl.h"

namespace gallop {
namespace {

[[noreturn]] void invalid(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

const Options& checked(const Options& o) {
  if (o.threads < 0 || o.threads > 4096) {
    invalid(fmt::format("threads is {}, expected 0 (all) to 4096", o.threads));
  }
  if (!(o.clip_value >= 0)) {
    invalid(fmt::format("clip_value is {}, expected 0 (off) or more", o.clip_value));
  }
  if (!(o.clip_norm >= 0)) {
    invalid(fmt::format("clip_norm is {}, expected 0 (off) or more", o.clip_norm));
  }
  return o;
}

}  // namespace

Optimizer::Impl::Impl(std::string_view rule_name, const Options& opts)
    : rule(find_rule(rule_name)),
      lr_knob(static_cast<size_t>(rule.info.knob("lr"))),
      clip_knob(static_cast<size_t>(rule.info.knob("max_grad_norm"))),
      options(checked(opts)),
      backend(rule, opts.threads) {
  if (options.device.kind == Device::Kind::cpu) {
    if (options.mode == Mode::compiled) {
      fitted.emplace(rule, backend.isa_index(), options.fold_hyper);
    }
    return;
  }
  cuda::require_device(options.device.index);
  cuda = std::make_unique<cuda::Engine>(rule, options, slots, groups);
}

// Kernels that are not linked in, for parameters that are about to be added.
void Optimizer::Impl::compile_for(const Group& group, std::vector<Slot>& added) {
  if (cuda != nullptr) return;  // when it plans its launches
  if (!fitted) return backend.get_kernels();
  for (Slot& s : added) s.tensor.fitted = fitted->kernels_for(s.tensor, group.hyper);
}

void Optimizer::Impl::pull() {
  if (cuda == nullptr) return;
  const std::optional<cuda::Engine::Totals> totals = cuda->pull(slots, groups);
  if (!totals) return;
  skipped = totals->skipped;
  not_finite = totals->not_finite;
  grad_norm = totals->norm;
}

void Optimizer::Impl::push() {
  if (cuda != nullptr) cuda->push(skipped, not_finite, options.seed);
}

Scalars Optimizer::Impl::initial_scalars() const {
  Scalars s{};
  std::copy(rule.scalars.begin(), rule.scalars.end(), s.begin());
  return s;
}

Group& Optimizer::Impl::group_at(size_t g) {
  if (g < groups.size()) return groups[g];
  invalid(fmt::format("group {} does not exist, there are {}", g, groups.size()));
}

Slot& Optimizer::Impl::slot_at(size_t i) {
  if (i < slots.size()) return slots[i];
  invalid(fmt::format("parameter {} does not exist, there are {}", i, slots.size()));
}

size_t Optimizer::Impl::knob_at(std::string_view knob) const {
  const int i = rule.info.knob(knob);
  if (i >= 0) return static_cast<size_t>(i);
  std::vector<std::string> names;
  for (const KnobInfo& k : rule.info.knobs) names.push_back(k.name);
  invalid(fmt::format("{} has no hyper-parameter '{}', expected one of {}", rule.info.name, knob,
                      fmt::join(names, ", ")));
}

void Optimizer::Impl::check_value(size_t knob, double value) const {
  const KnobInfo& k = rule.info.knobs[knob];
  const bool low = k.low_included ? value >= k.low : value > k.low;
  const bool high = k.high_included ? value <= k.high : value < k.high;
  if (low && high && std::isfinite(value) && (!k.whole || value == std::floor(value))) return;
  invalid(
      fmt::format("{} {} is {}, expected {}", rule.info.name, k.name, value, describe_range(k)));
}

void Optimizer::Impl::check_together(const std::vector<double>& hyper) const {
  const char* why = rule.reject == nullptr ? nullptr : rule.reject(hyper.data());
  if (why != nullptr) invalid(fmt::format("{}: {}", rule.info.name, why));
}

Optimizer::Optimizer(std::string_view rule, const Options& options)
    : impl_(std::make_unique<Impl>(rule, options)) {}
Optimizer Optimizer::from_rule_file(const std::string& path, const Options& options) {
  return Optimizer(load_rule_file(path), options);
}
Optimizer::~Optimizer() = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;

Group Optimizer::Impl::make_group(const GroupOptions& o) const {
  validate(o.schedule);
  if (o.state_rounding != Rounding::nearest && o.state_rounding != Rounding::stochastic) {
    invalid(fmt::format("state_rounding is {}, expected nearest or stochastic",
                        to_string(o.state_rounding)));
  }
  Group group;
  group.options = o;
  for (const KnobInfo& k : rule.info.knobs) group.hyper.push_back(k.value);
  for (const auto& [name, value] : o.hyper) {
    const size_t knob = knob_at(name);
    check_value(knob, value);
    group.hyper[knob] = value;
  }
  check_together(group.hyper);
  group.present = rule.present_states(group.hyper.data());
  group.scalars = initial_scalars();
  return group;
}

Slot Optimizer::Impl::make_slot(const Param& param, const Group& group) const {
  return {.param = param, .tensor = {}, .group = groups.size(), .scalars = group.scalars};
}

size_t Optimizer::add_group(std::vector<Param> params, const GroupOptions& options) {
  Impl& m = *impl_;
  if (m.in_step) invalid("add_group was called between begin_step and end_step");
  m.pull();
  Group group = m.make_group(options);
  std::set<std::string_view> names;
  for (const Slot& s : m.slots) names.insert(s.param.name);
  std::vector<Slot> added;
  for (Param& p : params) {
    if (!names.insert(p.name).second) {
      invalid(fmt::format("two parameters are named '{}', expected unique names", p.name));
    }
    added.push_back(m.make_slot(p, group));
    group.slots.push_back(m.slots.size() + added.size() - 1);
  }
  prepare_group(m.rule, m.options, group, added);
  m.compile_for(group, added);
  m.slots.insert(m.slots.end(), added.begin(), added.end());
  m.groups.push_back(std::move(group));
  m.reserve();
  if (m.cuda) m.cuda->changed();
  return m.groups.size() - 1;
}

int64_t Optimizer::state_bytes_of(std::span<const Param> params,
                                  const GroupOptions& options) const {
  const Group group = impl_->make_group(options);
  std::vector<Slot> slots;
  for (const Param& p : params) slots.push_back(impl_->make_slot(p, group));
  return static_cast<int64_t>(plan_group(impl_->rule, impl_->options.device, group, slots));
}

// Throws, with the group as it was, if the value cannot be set.
void Optimizer::Impl::check_set(Group& group, size_t knob, double value) const {
  check_value(knob, value);
  const double before = std::exchange(group.hyper[knob], value);
  const char* why = rule.reject == nullptr ? nullptr : rule.reject(group.hyper.data());
  const bool same_states =
      rule.present_states(group.hyper.data()) == group.present &&
      std::all_of(group.slots.begin(), group.slots.end(), [&](size_t i) {
        const View &now = slots[i].tensor.view,
                   then = view_of(rule, slots[i].param, slots[i].tensor.n, group.hyper.data());
        return now.matrix == then.matrix && now.left == then.left && now.right == then.right;
      });
  group.hyper[knob] = before;
  const std::string& name = rule.info.name;
  if (why != nullptr) invalid(fmt::format("{}: {}", name, why));
  if (!same_states) {
    invalid(
        fmt::format("{} {} cannot change from {} to {}: it decides which states are kept, and "
                    "those are fixed when a group is added",
                    name, rule.info.knobs[knob].name, before, value));
  }
}

void Optimizer::Impl::change(size_t g, size_t knob, double value) {
  double& now = groups[g].hyper[knob];
  if (cuda == nullptr) {
    now = value;
    return;
  }
  const auto passes = [&] {
    const double* hyper = groups[g].hyper.data();
    return std::pair(rule.active_passes(hyper, false), rule.active_passes(hyper, true));
  };
  const auto before = passes();
  const double old = std::exchange(now, value);
  if (passes() == before) return cuda->group_changed(g);
  now = old;
  pull();
  now = value;
  cuda->changed();
}

void Optimizer::set(size_t g, std::string_view knob, double value) {
  Group& group = impl_->group_at(g);
  const size_t i = impl_->knob_at(knob);
  impl_->check_set(group, i, value);
  impl_->change(g, i, value);
}

void Optimizer::set_all(std::string_view knob, double value) {
  const size_t i = impl_->knob_at(knob);
  for (Group& g : impl_->groups) impl_->check_set(g, i, value);
  for (size_t g = 0; g < impl_->groups.size(); ++g) {
    impl_->change(g, i, value);
  }
}

double Optimizer::get(size_t g, std::string_view knob) const {
  return impl_->group_at(g).hyper[impl_->knob_at(knob)];
}

double Optimizer::current_lr(size_t g) const {
  impl_->pull();
  return impl_->lr_of(impl_->group_at(g));
}

void Optimizer::set_schedule(size_t g, const Schedule& schedule) {
  validate(schedule);
  impl_->group_at(g).options.schedule = schedule;
  if (impl_->cuda) impl_->cuda->group_changed(g);
}

const Schedule& Optimizer::schedule(size_t g) const { return impl_->group_at(g).options.schedule; }

void Optimizer::set_grad(size_t i, void* grad) {
  Slot& s = impl_->slot_at(i);
  if (grad == s.tensor.grad) return;
  if (impl_->cuda && grad != nullptr && s.tensor.n > 0) {
    cuda::require_reachable(impl_->options.device.index, grad,
                            fmt::format("parameter '{}': gradient", s.param.name));
  }
  s.param.grad = s.tensor.grad = grad;
  if (impl_->cuda) impl_->cuda->grad_changed(i);
}

void Optimizer::set_data(size_t i, void* data) {
  Slot& s = impl_->slot_at(i);
  if (data == nullptr && s.tensor.n > 0) {
    invalid(fmt::format("parameter '{}': data is null", s.param.name));
  }
  if (impl_->cuda && s.tensor.n > 0) {
    cuda::require_reachable(impl_->options.device.index, data,
                            fmt::format("parameter '{}': data", s.param.name));
    impl_->pull();
    impl_->cuda->changed();
  }
  s.param.data = s.tensor.param = data;
}

void Optimizer::refresh_masters() {
  for (const Slot& s : impl_->slots) fill_low(s, impl_->options.device);
}

const RuleInfo& Optimizer::rule() const { return impl_->rule.info; }
const Options& Optimizer::options() const { return impl_->options; }
size_t Optimizer::groups() const { return impl_->groups.size(); }
size_t Optimizer::size() const { return impl_->slots.size(); }
const Param& Optimizer::param(size_t i) const { return impl_->slot_at(i).param; }
size_t Optimizer::group_of(size_t i) const { return impl_->slot_at(i).group; }
const void* Optimizer::low_bits(size_t i) const { return impl_->slot_at(i).tensor.low; }
std::string_view Optimizer::isa() const { return impl_->cuda ? "cuda" : impl_->backend.isa(); }

int64_t Optimizer::steps(size_t i) const {
  impl_->pull();
  return impl_->slot_at(i).steps;
}

int64_t Optimizer::skipped() const {
  impl_->pull();
  return impl_->skipped;
}

const int64_t* Optimizer::skipped_at() const {
  return impl_->cuda ? impl_->cuda->skipped_at() : &impl_->skipped;
}

int64_t Optimizer::not_finite() const {
  impl_->pull();
  return impl_->not_finite + impl_->backend.not_finite();
}

double Optimizer::grad_norm() const {
  impl_->pull();
  return impl_->grad_norm;
}

namespace {

StateFormat format_of(cpu::Storage s) {
  using cpu::Storage;
  if (is_bitsandbytes(s)) return StateFormat::bnb8;
  if (is_4_bit(s)) return StateFormat::q4;
  if (s == Storage::q8 || s == Storage::q8_nonneg) return StateFormat::q8;
  if (s == Storage::fp8) return StateFormat::fp8;
  return s == Storage::f32 || s == Storage::f64 ? StateFormat::f32 : StateFormat::bf16;
}

StateView view_of_state(const Slot& s, const StateInfo& info, size_t j) {
  const cpu::Storage storage = s.tensor.state_storage[j];
  const StateFormat format = format_of(storage);
  const DType type = storage == cpu::Storage::f64  ? DType::f64
                     : format == StateFormat::bf16 ? DType::bf16
                                                   : DType::f32;
  const int64_t n = state_elements(s.tensor.view, s.tensor.n, info);
  StateView view{info.name, s.tensor.state[j], type, n, bytes_for(storage, n), format};
  if (!is_quantised(storage)) return view;
  view.scales = s.tensor.scale[j];
  view.block = scaled_block(storage);
  view.nonneg = storage == cpu::Storage::q8_nonneg || storage == cpu::Storage::bnb8_nonneg ||
                storage == cpu::Storage::q4_nonneg;
  return view;
}

}  // namespace

StateFormat Optimizer::state_format(size_t i) const { return impl_->slot_at(i).format; }

std::vector<float> Optimizer::state_values(size_t i, std::string_view name) const {
  const Slot& s = impl_->slot_at(i);
  std::vector<std::string> names;
  for (const StateView& v : states(i)) {
    names.push_back(v.name);
    if (v.name != name) continue;
    const auto bytes = static_cast<size_t>(v.bytes);
    const auto scale_bytes = static_cast<size_t>(v.scale_count()) * sizeof(float);
    std::vector<std::byte> data(bytes), scales(scale_bytes);
    const auto copy = [&](std::vector<std::byte>& to, const void* from) {
      if (to.empty()) return;
      impl_->cuda ? cuda::copy_to_host(impl_->options.device.index, to.data(), from, to.size())
                  : void(std::memcpy(to.data(), from, to.size()));
    };
    impl_->pull();
    copy(data, v.data);
    copy(scales, v.scales);
    const auto j = static_cast<size_t>(
        &*std::find_if(impl_->rule.info.states.begin(), impl_->rule.info.states.end(),
                       [&](const StateInfo& info) { return info.name == name; }) -
        impl_->rule.info.states.data());
    return decoded(s.tensor.state_storage[j], data.data(), scales.data(), v.size);
  }
  invalid(fmt::format("parameter '{}' has no state '{}', expected one of {}", s.param.name, name,
                      fmt::join(names, ", ")));
}

std::vector<StateView> Optimizer::states(size_t i) const {
  const Slot& s = impl_->slot_at(i);
  std::vector<StateView> out;
  for (size_t j = 0; j < impl_->rule.info.states.size(); ++j) {
    if (!(s.tensor.present >> j & 1) || impl_->rule.info.states[j].scratch) continue;
    const StateInfo& info = impl_->rule.info.states[j];
    out.push_back(view_of_state(s, info, j));
  }
  return out;
}

int64_t Optimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const Group& g : impl_->groups) bytes += static_cast<int64_t>(g.memory.bytes());
  return bytes;
}

namespace {

// Bytes that a pass reads and writes; a pass over everything is an entry.
int64_t bytes_of_pass(const Slot& slot, const Pass& pass, const std::vector<StateInfo>& states) {
  const cpu::Tensor& t = slot.tensor;
  const auto data = static_cast<int64_t>(size_of(slot.param.dtype));
  const bool master =
      t.param_storage == cpu::Storage::bf16_master || t.param_storage == cpu::Storage::f16_master;
  const bool remainder = t.param_storage == cpu::Storage::bf16_remainder;
  int64_t bytes = pass.grad ? static_cast<int64_t>(size_of(slot.param.grad_dtype)) : 0;
  if (pass.param) bytes += master ? 4 : remainder ? data + 2 : data;
  if ((pass.writes & kWritesParam) != 0) bytes += master ? data + 4 : remainder ? data + 2 : data;
  bytes *= t.n;
  for (size_t j = 0; j < states.size(); ++j) {
    if (!(t.present >> j & 1) || states[j].per != StatePer::element) continue;
    const int64_t stored =
        bytes_for(t.state_storage[j], t.n) + 4 * scales_for(t.state_storage[j], t.n);
    bytes += stored * ((pass.reads >> j & 1) + (pass.writes >> j & 1));
  }
  return bytes;
}

bool writes_anything(const Slot& slot, const Pass& pass) {
  return (pass.writes & (kWritesParam | slot.tensor.present)) != 0;
}

}  // namespace

// Calls f(bytes, only read) for everything that a step does with a parameter.
template <class F>
void Optimizer::Impl::for_bytes(F f) const {
  for (const Slot& s : slots) {
    const auto add = [&](const Pass& pass) {
      f(bytes_of_pass(s, pass, rule.info.states), !writes_anything(s, pass));
    };
    if (rule.passes.empty()) add({~0u, rule.entries[0].writes});
    const unsigned active = rule.active_passes(groups[s.group].hyper.data(), s.tensor.view.matrix);
    for (size_t p = 0; p < rule.passes.size(); ++p) {
      // What numbers decide on is counted as if they were zero.
      if ((active >> p & 1) != 0 && rule.passes[p].if_set < 0) add(rule.passes[p]);
    }
    const auto gradient = static_cast<int64_t>(size_of(s.param.grad_dtype)) * s.tensor.n;
    if (options.zero_grad) f(gradient, false);
    if (needs_norm()) f(gradient, true);
  }
}

int64_t Optimizer::bytes_per_step() const {
  int64_t bytes = 0;
  impl_->for_bytes([&](int64_t n, bool) { bytes += n; });
  return bytes;
}

int64_t Optimizer::bytes_only_read() const {
  int64_t bytes = 0;
  impl_->for_bytes([&](int64_t n, bool only_read) { bytes += only_read ? n : 0; });
  return bytes;
}

}  // namespace gallop
