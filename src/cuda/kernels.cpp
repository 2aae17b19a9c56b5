// SPDX-License-Identifier: MIT
#include "cuda/kernels.h"

#include <fmt/format.h>

#include <algorithm>

#include "gallop/error.h"
#include "jit/rule_file.h"
#include "optimizer/rule.h"

namespace gallop::cuda {
namespace {

std::string storage(Storage s) { return fmt::format("(gallop::Storage){}", static_cast<int>(s)); }

}  // namespace

Kernels::Kernels(const Rule& rule, Mode mode, int device)
    : rule_(rule),
      linked_in_(!rule.from_file && mode != Mode::compiled),
      fits_(mode == Mode::compiled && rule.passes.empty()),
      device_(device) {
  if (!linked_in_) {
    jit::text_of(rule);
  } else if (rule.cuda == nullptr) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{} was built without CUDA kernels", rule.info.name));
  }
}

bool Kernels::fits_formats() const { return fits_; }

const void* Kernels::compiled(const std::string& header, const std::string& kernel) {
  const auto it = known_.find(kernel);
  if (it != known_.end()) return it->second;
  jit::Unit unit(jit::text_of(rule_));
  unit.include(header);
  return known_[kernel] = load_kernel(unit, "gallop::cuda::" + kernel, device_);
}

// As detail::has_pass, for vectors or for matrices.
bool Kernels::has_pass(int pass, unsigned present) const {
  const Pass& p = rule_.passes[static_cast<size_t>(pass)];
  for (const bool matrix : {false, true}) {
    if (p.only != Only::any && (p.only == Only::matrices) != matrix) continue;
    unsigned writes = p.writes;
    for (size_t j = 0; j < rule_.info.states.size(); ++j) {
      const StateInfo& s = rule_.info.states[j];
      const bool kept = (present >> j & 1) != 0 && s.per == StatePer::element &&
                        (matrix ? s.of_matrices : s.of_vectors);
      if (!kept) writes &= ~(1u << j);
    }
    for (size_t j = rule_.info.states.size(); j < 31; ++j) writes &= ~(1u << j);
    if (writes != 0) return true;
    if (std::any_of(rule_.sums.begin(), rule_.sums.end(), [&](const Sum& s) {
          return (s.passes >> pass & 1) != 0 && (matrix || s.over == Over::tensor);
        })) {
      return true;
    }
  }
  return false;
}

const void* Kernels::update(int entry, unsigned present, Kind kind, const Formats& formats) {
  const int variant = rule_.variant_of(present);
  if (linked_in_) {
    const int at = entry * (1 << rule_.optional_states) + variant;
    return rule_.cuda->table[at * kKinds + static_cast<int>(kind)];
  }
  const std::string type = "gallop::rules::" + jit::text_of(rule_).type;
  const std::string states = fmt::format("gallop::detail::variant_states<{}>({})", type, variant);
  if (!rule_.passes.empty()) {
    if (!has_pass(entry, present)) return nullptr;
    return compiled("cuda/norm_between.cuh",
                    fmt::format("norm_pass<{}, {}, {}, (gallop::cpu::Path){}>", type, entry, states,
                                static_cast<int>(path_of(kind))));
  }
  std::string lie = "gallop::cuda::AnyFormats";
  if (fits_) {
    lie = fmt::format("gallop::cuda::FixedFormats<{}, {}", storage(formats.param),
                      storage(formats.grad));
    for (size_t j = 0; j < rule_.info.states.size(); ++j) lie += ", " + storage(formats.state[j]);
    lie += ">";
  }
  return compiled("cuda/update_kernel.cuh",
                  fmt::format("update<{}, {}, {}, (gallop::cuda::Kind){}, {}>", type, entry, states,
                              static_cast<int>(kind), lie));
}

const void* Kernels::numbers(int entry) {
  if (linked_in_) return rule_.cuda->coefs[entry];
  const void*& at = numbers_[entry];
  if (at != nullptr) return at;
  return at = compiled("cuda/update_kernel.cuh", fmt::format("numbers<gallop::rules::{}, {}>",
                                                             jit::text_of(rule_).type, entry));
}

const void* Kernels::between(int pass) {
  if (linked_in_) return rule_.cuda->between[pass];
  const void*& at = between_[pass];
  if (at != nullptr) return at;
  return at = compiled("cuda/norm_between.cuh", fmt::format("between_passes<gallop::rules::{}, {}>",
                                                            jit::text_of(rule_).type, pass));
}

const void* Kernels::look_at_bases() {
  if (linked_in_) return rule_.cuda->look_at_bases;
  if (bases_ != nullptr) return bases_;
  return bases_ = compiled("cuda/norm_between.cuh", fmt::format("look_at_bases<gallop::rules::{}>",
                                                                jit::text_of(rule_).type));
}

const void* Kernels::last_pass() {
  if (last_ != nullptr) return last_;
  unsigned all = 0;
  for (size_t j = 0; j < rule_.info.states.size(); ++j) all |= 1u << j;
  for (int pass = static_cast<int>(rule_.passes.size()); pass-- > 0;) {
    if ((rule_.passes[static_cast<size_t>(pass)].writes & kWritesParam) == 0) continue;
    if (const void* kernel = update(pass, all, Kind::f32, {})) return last_ = kernel;
  }
  return nullptr;
}

}  // namespace gallop::cuda
