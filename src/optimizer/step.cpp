// SPDX-License-Identifier: MIT
// The life of a step: gradients' norm and finiteness, coefficients, jobs for the backend, commit.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/quantise.h"
#include "cuda/memory.h"
#include "gallop/error.h"
#include "optimizer/impl.h"

namespace gallop {
namespace {

[[noreturn]] void invalid(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

void check_args(const StepArgs& a) {
  if (!(a.grad_scale > 0) || std::isinf(a.grad_scale)) {
    invalid(fmt::format("grad_scale is {}, expected a number above 0", a.grad_scale));
  }
  if (!(a.accumulation > 0) || std::isinf(a.accumulation)) {
    invalid(fmt::format("accumulation is {}, expected a number above 0", a.accumulation));
  }
}

}  // namespace

double Optimizer::Impl::lr_of(const Group& g) const {
  return g.hyper[lr_knob] * schedule_factor(g.options.schedule, g.steps);
}

int Optimizer::Impl::entry_at(std::string_view entry) const {
  for (size_t e = 0; e < rule.entries.size(); ++e) {
    if (entry == rule.entries[e].name) return static_cast<int>(e);
  }
  invalid(fmt::format("{} has no entry '{}', expected one of {}", rule.info.name, entry,
                      fmt::join(rule.info.entries, ", ")));
}

double Optimizer::Impl::base_scale(const Group& g) const {
  return (g.options.maximize ? -1 : 1) / (args.grad_scale * args.accumulation);
}

bool Optimizer::Impl::needs_norm() const {
  if (options.clip_norm > 0 || options.skip_nonfinite) return true;
  return rule.clip != nullptr && std::any_of(groups.begin(), groups.end(), [&](const Group& g) {
           return g.hyper[clip_knob] > 0;
         });
}

void Optimizer::Impl::reserve() {
  std::vector<const cpu::Tensor*> tensors;
  bool elements = false, matrix = false;
  for (Slot& s : slots) {
    s.tensor.index = tensors.size();
    tensors.push_back(&s.tensor);
    elements = elements || s.tensor.n > 0;
    matrix = matrix || s.tensor.view.matrix;
  }
  lacks_matrix = elements && !matrix;
  if (cuda == nullptr) backend.reserve(tensors);
  coefs.reserve(slots.size());
  group_coefs.assign(groups.size(), 0);
  updated.assign(slots.size(), 0);
  chosen.reserve(slots.size());
  chosen_coefs.reserve(slots.size());
  jobs.reserve(slots.size());
  everything.resize(slots.size());
  std::iota(everything.begin(), everything.end(), size_t{0});
}

void Optimizer::Impl::compute_coefs(const Group& g, Coefs& c) const {
  std::array<double, kMaxKnobs> hyper;
  std::copy(g.hyper.begin(), g.hyper.end(), hyper.begin());
  hyper[lr_knob] = lr_of(g);
  rule.coef(hyper.data(), c.clock, c.after.data(), c.values.data());
}

// Chooses the coefficients for a slot, computing them if no slot of the group had the same clock.
void Optimizer::Impl::find_coefs(size_t index, int entry) {
  const Slot& s = slots[index];
  const Group& g = groups[s.group];
  const bool per_group = rule.info.counts_per_group;
  // Entries other than the step belong to the step that was last taken.
  const int64_t done = per_group ? g.steps : s.steps;
  const Clock clock{static_cast<double>(entry == 0 ? done + 1 : std::max<int64_t>(done, 1)),
                    s.steps == 0, 1};
  const Scalars& before = per_group ? g.scalars : s.scalars;
  for (size_t c = coefs.size(); c-- > group_coefs[s.group];) {
    if (coefs[c].clock.t == clock.t && coefs[c].clock.first == clock.first &&
        coefs[c].before == before) {
      chosen_coefs.push_back(static_cast<uint32_t>(c));
      return;
    }
  }
  Coefs fresh{clock, before, before, {}};
  fresh.clock.schedule = schedule_factor(g.options.schedule, g.steps);
  compute_coefs(g, fresh);
  chosen_coefs.push_back(static_cast<uint32_t>(coefs.size()));
  coefs.push_back(fresh);
}

void Optimizer::Impl::make_jobs(int entry, bool with_grad) {
  jobs.clear();
  const double limit =
      options.clip_value > 0 ? options.clip_value : std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < chosen.size(); ++i) {
    const Slot& s = slots[chosen[i]];
    const Group& g = groups[s.group];
    double scale = base_scale(g), factor = 1;
    if (with_grad && entry == 0) {
      factor = norm_factor;
      if (rule.clip != nullptr && g.hyper[clip_knob] > 0) {
        factor *= rule.clip(g.hyper.data(), grad_norm * norm_factor);
      }
    }
    if (std::isinf(limit)) scale *= std::exchange(factor, 1);
    const Coefs* coef = chosen_coefs.empty() ? nullptr : &coefs[chosen_coefs[i]];
    const Bits64 key = combine(combine(options.seed, s.id), static_cast<Bits64>(s.steps));
    const Bits32 dither = dither_of(options.seed, s.id, s.steps);
    const unsigned passes = rule.active_passes(g.hyper.data(), s.tensor.view.matrix);
    jobs.push_back({&s.tensor, coef == nullptr ? nullptr : coef->values.data(), scale, limit,
                    factor, key, dither, passes, g.hyper.data(),
                    coef == nullptr ? Clock{} : coef->clock});
  }
}

void Optimizer::Impl::apply(int entry, bool zero_grad) {
  chosen_coefs.clear();
  coefs.clear();
  size_t last_group = groups.size();
  for (size_t i : chosen) {
    if (slots[i].group != last_group) group_coefs[last_group = slots[i].group] = coefs.size();
    find_coefs(i, entry);
  }
  make_jobs(entry, true);
  backend.update(entry, jobs, options.mode, zero_grad);
}

bool Optimizer::begin_step(const StepArgs& args) {
  Impl& m = *impl_;
  check_args(args);
  if (m.in_step) invalid("begin_step was called twice without end_step");
  if (m.evaluating) {
    invalid(fmt::format("{} is in eval mode: call train() before step()", m.rule.info.name));
  }
  if (m.rule.needs_matrix && m.lacks_matrix) {
    invalid(
        fmt::format("{}: none of the {} parameters is a hidden matrix, so nothing is left for "
                    "it to optimize; adamw is for the others",
                    m.rule.info.name, m.slots.size()));
  }
  m.args = args;
  m.norm_factor = 1;
  m.applied = !args.found_inf;
  if (m.cuda) {
    m.cuda->begin(args, m.applied && m.needs_norm());
    m.in_step = true;
    return m.applied;
  }
  if (m.applied && m.needs_norm()) {
    m.chosen.clear();
    m.chosen_coefs.clear();
    for (size_t i = 0; i < m.slots.size(); ++i) {
      if (m.slots[i].tensor.grad != nullptr) m.chosen.push_back(i);
    }
    m.make_jobs(0, false);
    const double sum = m.backend.square_sum(m.jobs);
    m.grad_norm = std::sqrt(sum);
    if (m.options.skip_nonfinite && !std::isfinite(sum)) m.applied = false;
    if (m.options.clip_norm > 0) {
      const double factor = m.options.clip_norm / (m.grad_norm + 1e-6);  // as torch
      m.norm_factor = factor < 1 || std::isnan(factor) ? factor : 1;
    }
  }
  m.in_step = true;
  return m.applied;
}

// Takes those of the parameters that have a gradient, each at most once in a step.
void Optimizer::Impl::choose(std::span<const size_t> params) {
  chosen.clear();
  try {
    for (size_t i : params) {
      const Slot& s = slot_at(i);
      if (updated[i]) {
        invalid(fmt::format("parameter '{}' was updated twice in one step", s.param.name));
      }
      if (s.tensor.grad == nullptr) continue;
      chosen.push_back(i);
      updated[i] = 1;
    }
  } catch (...) {
    for (size_t i : chosen) updated[i] = 0;
    throw;
  }
}

void Optimizer::step_params(std::span<const size_t> params) {
  Impl& m = *impl_;
  if (!m.in_step) invalid("step_params was called outside begin_step and end_step");
  if (!m.applied) return;
  m.choose(params);
  try {
    if (m.cuda) return m.cuda->update(0, params, false);
    m.apply(0, m.options.zero_grad);
  } catch (...) {
    for (size_t i : m.chosen) m.updated[i] = 0;
    throw;
  }
  for (size_t i = 0; i < m.chosen.size(); ++i) {
    m.slots[m.chosen[i]].scalars = m.coefs[m.chosen_coefs[i]].after;
  }
}

void Optimizer::end_step() {
  Impl& m = *impl_;
  if (!m.in_step) invalid("end_step was called without begin_step");
  m.in_step = false;
  if (m.cuda) {
    std::fill(m.updated.begin(), m.updated.end(), 0);
    m.applied ? m.cuda->update(0, {}, true) : m.cuda->count_skipped();
    return;
  }
  if (!m.applied) {
    ++m.skipped;
    return;
  }
  for (size_t i = 0; i < m.slots.size(); ++i) m.slots[i].steps += std::exchange(m.updated[i], 0);
  for (Group& g : m.groups) {
    if (m.rule.info.counts_per_group) {
      const double factor = schedule_factor(g.options.schedule, g.steps);
      Coefs c{{static_cast<double>(g.steps + 1), false, factor}, g.scalars, g.scalars, {}};
      m.compute_coefs(g, c);
      g.scalars = c.after;
    }
    ++g.steps;
  }
}

bool Optimizer::step(const StepArgs& args) {
  begin_step(args);
  try {
    if (impl_->cuda && impl_->applied) {  // the last launch also ends the step
      impl_->cuda->update(0, impl_->everything, true);
      impl_->in_step = false;
      return true;
    }
    step_params(impl_->everything);
  } catch (...) {
    impl_->in_step = false;
    throw;
  }
  end_step();
  return impl_->applied;
}

bool Optimizer::step(GradScaler& scaler, double accumulation) {
  const bool asked = std::exchange(impl_->options.skip_nonfinite, true);
  bool applied = false;
  try {
    const int64_t before = impl_->cuda ? skipped() : 0;
    applied = step({.grad_scale = scaler.scale, .accumulation = accumulation});
    if (impl_->cuda) applied = skipped() == before;
  } catch (...) {
    impl_->options.skip_nonfinite = asked;
    throw;
  }
  impl_->options.skip_nonfinite = asked;
  scaler.update(!applied);
  return applied;
}

void Optimizer::run(std::string_view name, const StepArgs& args) {
  Impl& m = *impl_;
  check_args(args);
  const int entry = m.entry_at(name);
  if (m.in_step) invalid(fmt::format("run(\"{}\") was called before end_step", name));
  if (entry == 0) invalid("run(\"step\"): call step() instead");
  m.args = args;
  m.norm_factor = 1;
  if (m.cuda) {
    m.cuda->begin(args, false);
    return m.cuda->update(entry, m.everything, false);
  }
  const bool grad = m.rule.entries[static_cast<size_t>(entry)].grad;
  m.chosen.clear();
  for (size_t i = 0; i < m.slots.size(); ++i) {
    // An entry without gradient works on what steps have left: there is none before the first.
    const bool ready = grad ? m.slots[i].tensor.grad != nullptr : m.slots[i].steps > 0;
    if (ready) m.chosen.push_back(i);
  }
  m.apply(entry, grad && m.options.zero_grad);
}

void Optimizer::train() {
  Impl& m = *impl_;
  if (m.evaluating) run("train");
  m.evaluating = false;
}

void Optimizer::eval() {
  Impl& m = *impl_;
  const auto& names = m.rule.info.entries;
  if (m.evaluating || std::find(names.begin(), names.end(), "eval") == names.end()) return;
  run("eval");
  m.evaluating = true;
}

void Optimizer::zero_grad() {
  Impl& m = *impl_;
  if (m.cuda) return m.cuda->zero_grads();
  m.chosen.clear();
  m.chosen_coefs.clear();
  for (size_t i = 0; i < m.slots.size(); ++i) {
    if (m.slots[i].tensor.grad != nullptr) m.chosen.push_back(i);
  }
  m.make_jobs(0, false);
  m.backend.zero_grads(m.jobs);
}

void Optimizer::reset_state() {
  Impl& m = *impl_;
  if (m.in_step) invalid("reset_state was called between begin_step and end_step");
  m.pull();
  for (Slot& s : m.slots) {
    s.steps = 0;
    s.scalars = m.initial_scalars();
    for (const StateView& v : states(static_cast<size_t>(&s - m.slots.data()))) {
      const auto zero = [&](void* data, int64_t bytes) {
        if (bytes == 0) return;
        m.cuda ? cuda::zero(m.options.device.index, data, static_cast<size_t>(bytes))
               : void(std::memset(data, 0, static_cast<size_t>(bytes)));
      };
      zero(v.data, v.bytes);
      if (v.scales != nullptr) zero(v.scales, 4 * v.scale_count());
    }
  }
  for (Group& g : m.groups) {
    g.steps = 0;
    g.scalars = m.initial_scalars();
  }
  m.push();
}

}  // namespace gallop
