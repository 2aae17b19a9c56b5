// SPDX-License-Identifier: MIT
#include "jit/fitted.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "cpu/isa.h"
#include "jit/library.h"
#include "jit/rule_file.h"

namespace gallop::jit {
namespace {

using Coef = std::array<double, detail::kMaxCoefs>;

// Coefficients that come out the same at many steps, rates and schedules. Only steps that have
// them use the kernels they are folded into, so a guess that is wrong later costs nothing.
unsigned constant_coefs(const Rule& rule, const std::vector<double>& hyper, double* values) {
  const auto lr = static_cast<size_t>(rule.info.knob("lr"));
  unsigned same = rule.coefs < 32 ? (1u << rule.coefs) - 1 : ~0u;
  bool first = true;
  std::vector<double> scalars = rule.scalars;
  scalars.resize(detail::kMaxScalars);
  for (const double t : {1.0, 2.0, 3.0, 4.0, 7.0, 11.0, 100.0, 1001.0, 1e5}) {
    for (const double factor : {1.0, 0.37}) {
      std::vector<double> varied = hyper;
      varied[lr] *= factor;
      Coef c{};
      rule.coef(varied.data(), {t, t == 1, factor}, scalars.data(), c.data());
      for (int i = 0; i < rule.coefs; ++i) {
        const auto at = static_cast<size_t>(i);
        if (first) values[at] = c[at];
        if (values[at] != c[at] || !std::isfinite(c[at])) same &= ~(1u << i);
      }
      first = false;
    }
  }
  return same;
}

std::string formats_of(const cpu::Tensor& t, size_t states) {
  const auto storage = [](Storage s) {
    return fmt::format("static_cast<gallop::Storage>({})", static_cast<int>(s));
  };
  std::string out = storage(t.param_storage) + ", " + storage(t.grad_storage);
  for (size_t j = 0; j < states; ++j) {
    const bool kept = (t.present >> j & 1) != 0;
    out += ", " + storage(kept ? t.state_storage[j] : Storage::f32);
  }
  return out;
}

// put_into() of the coefficients that are known.
std::string known_coefs(unsigned known, const double* values) {
  std::string body;
  for (int i = 0; known >> i != 0; ++i) {
    if ((known >> i & 1) == 0) continue;
    body += fmt::format(" k[{}] = static_cast<T>({:a});", i, values[i]);
  }
  return body;
}

}  // namespace

const cpu::FittedKernels* FittedCpu::kernels_for(const cpu::Tensor& t,
                                                 const std::vector<double>& hyper) {
  const RuleText& text = text_of(rule_);
  const std::string isa = cpu::toolkits()[static_cast<size_t>(isa_)]->isa;
  const std::string table = fmt::format(
      "gallop::cpu::FittedTable<gallop::rules::{}, {}, static_cast<gallop::cpu::Path>({}), "
      "gallop::cpu::FixedFormats<{}>",
      text.type, rule_.variant_of(t.present), static_cast<int>(t.path()),
      formats_of(t, rule_.info.states.size()));
  auto kernels = std::make_unique<cpu::FittedKernels>();
  // Of a rule with norms, coefficients are used between passes too: they stay arguments.
  if (fold_ && rule_.passes.empty()) {
    kernels->known = constant_coefs(rule_, hyper, kernels->coef);
  }
  const std::string constants = known_coefs(kernels->known, kernels->coef);
  std::unique_ptr<cpu::FittedKernels>& slot = known_[table + constants];
  if (slot != nullptr) return slot.get();

  const auto load = [&](const std::string& known) {
    Unit unit(text);
    unit.include("cpu/fitted_loops.h");
    std::string type = table;
    if (!known.empty()) {
      unit.line("struct Known { template <class T> static GALLOP_FN void put_into(T* k) {" + known +
                " } };");
      type += ", Known";
    }
    unit.function("const gallop::cpu::Kernel* gallop_kernels()",
                  fmt::format("static constexpr {}> table; return table.at;", type));
    using Kernels = const cpu::Kernel*();
    return reinterpret_cast<Kernels*>(
        load_function(unit.text(), kernel_flags(isa), "gallop_kernels"))();
  };
  kernels->any = load("");
  if (!constants.empty()) kernels->folded = load(constants);
  slot = std::move(kernels);
  return slot.get();
}

}  // namespace gallop::jit
