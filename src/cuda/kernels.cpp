// SPDX-License-Identifier: MIT
#include "cuda/kernels.h"

#include <fmt/format.h>

#include <functional>

#include "gallop/error.h"
#include "jit/library.h"
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

int Kernels::last_pass() const {
  for (int pass = static_cast<int>(rule_.passes.size()); pass-- > 0;) {
    if ((rule_.passes[static_cast<size_t>(pass)].writes & kWritesParam) != 0) return pass;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} has no pass that writes the parameter", rule_.info.name));
}

Kernels::Name Kernels::name_of(const Wanted& w) const {
  const std::string type = "gallop::rules::" + jit::text_of(rule_).type;
  const int variant = rule_.variant_of(w.present);
  const std::string states = fmt::format("gallop::detail::variant_states<{}>({})", type, variant);
  const auto pass = [&](int number) -> Name {
    return {"cuda/norm_between.cuh",
            fmt::format("norm_pass<{}, {}, {}, (gallop::cpu::Path){}>", type, number, states,
                        static_cast<int>(path_of(w.kind)))};
  };
  switch (w.what) {
    case What::update:
      if (!rule_.passes.empty()) return rule_.has_pass(w.number, variant) ? pass(w.number) : Name{};
      break;
    case What::numbers:
      return {"cuda/update_kernel.cuh", fmt::format("numbers<{}, {}>", type, w.number)};
    case What::between:
      return {"cuda/norm_between.cuh", fmt::format("between_passes<{}, {}>", type, w.number)};
    case What::look_at_bases:
      return {"cuda/norm_between.cuh", fmt::format("look_at_bases<{}>", type)};
    case What::end:
      return pass(last_pass());
  }
  std::string formats = "gallop::cuda::AnyFormats";
  if (fits_) {
    formats = fmt::format("gallop::cuda::FixedFormats<{}, {}", storage(w.formats.param),
                          storage(w.formats.grad));
    for (size_t j = 0; j < rule_.info.states.size(); ++j) {
      formats += ", " + storage(w.formats.state[j]);
    }
    formats += ">";
  }
  return {"cuda/update_kernel.cuh",
          fmt::format("update<{}, {}, {}, (gallop::cuda::Kind){}, {}>", type, w.number, states,
                      static_cast<int>(w.kind), formats)};
}

const void* Kernels::linked(const Wanted& w) const {
  const RuleKernels& all = *rule_.cuda;
  const auto update = [&](int number) {
    const int at = number * (1 << rule_.optional_states) + rule_.variant_of(w.present);
    return all.table[at * kKinds + static_cast<int>(w.kind)];
  };
  switch (w.what) {
    case What::update:
      return update(w.number);
    case What::numbers:
      return all.coefs[w.number];
    case What::between:
      return all.between[w.number];
    case What::look_at_bases:
      return all.look_at_bases;
    case What::end:
      return update(last_pass());
  }
  return nullptr;
}

std::vector<const void*> Kernels::get(const std::vector<Wanted>& wanted) const {
  std::vector<const void*> out(wanted.size(), nullptr);
  std::vector<std::function<void()>> tasks;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (linked_in_) {
      out[i] = linked(wanted[i]);
      continue;
    }
    const Name name = name_of(wanted[i]);
    if (name.kernel.empty()) continue;
    tasks.emplace_back([this, name, &found = out[i]] {
      jit::Unit unit(jit::text_of(rule_));
      unit.include(name.header);
      found = load_kernel(unit, "gallop::cuda::" + name.kernel, device_);
    });
  }
  jit::in_parallel(tasks);
  return out;
}

}  // namespace gallop::cuda
