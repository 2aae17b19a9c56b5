// SPDX-License-Identifier: MIT
#include "check/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <regex>

#include "check/data.h"
#include "check/reachable.h"
#include "check/reference.h"
#include "cpu/isa.h"
#include "cpu/thread_pool.h"
#include "gallop/error.h"
#include "lab/progress.h"

namespace gallop::check {
namespace {

// A rule with one choice of its optional states.
struct Variant {
  const Rule* rule;
  Hyper hyper;
  std::string name;
};

// A value that switches a knob on.
double switched_on(const KnobInfo& k) { return k.whole ? 1 : 0.9; }

std::vector<Variant> variants_of(const Rule& rule) {
  std::vector<std::string> switches;
  for (const StateInfo& s : rule.info.states) {
    if (!s.when.empty()) switches.push_back(s.when);
  }
  std::vector<Variant> out;
  for (size_t mask = 0; mask < size_t{1} << switches.size(); ++mask) {
    Variant v{&rule, {}, rule.info.name};
    for (size_t i = 0; i < switches.size(); ++i) {
      const KnobInfo& k = rule.info.knobs[static_cast<size_t>(rule.info.knob(switches[i]))];
      v.hyper.emplace_back(k.name, mask >> i & 1 ? switched_on(k) : 0);
      if (mask >> i & 1) v.name += "+" + k.name;
    }
    // Decay must be seen to work, also where it is off by default.
    if (rule.info.knob("weight_decay") >= 0) v.hyper.emplace_back("weight_decay", 0.05);
    for (const auto& other : judgeable(rule)) v.hyper.push_back(other);
    out.push_back(std::move(v));
  }
  // AdamP: every gradient counts as near enough to orthogonal.
  if (rule.decides() && rule.info.knob("delta") >= 0) {
    for (double nesterov : {0, 1}) {
      Variant v = out.front();
      v.name += nesterov != 0 ? "+delta+nesterov" : "+delta";
      v.hyper.emplace_back("delta", 100);
      v.hyper.emplace_back("nesterov", nesterov);
      out.push_back(std::move(v));
    }
  }
  return out;
}

std::vector<double> full_hyper(const Variant& v) {
  std::vector<double> out;
  for (const KnobInfo& k : v.rule->info.knobs) out.push_back(k.value);
  for (const auto& [name, value] : v.hyper) {
    out[static_cast<size_t>(v.rule->info.knob(name))] = value;
  }
  return out;
}

struct Verdict {
  int64_t cases = 0;
  double worst = 0;
  std::string failure;
};

using Dims = std::vector<int64_t>;

// Rules with norms also meet matrices, tall, wide and several in one tensor.
std::vector<Dims> shapes_of(const Rule& rule, int64_t n) {
  constexpr int64_t kSide = 19;
  std::vector<Dims> out = {{n}};
  if (rule.passes.empty() || n < 3 * kSide) return out;
  out.push_back({n / kSide, kSide});
  if (n > 100000) return out;
  out.push_back({kSide, n / kSide});
  if (n >= int64_t{2} * kBlock) out.push_back({n / kBlock, kBlock});  // states that share scales
  out.push_back({3, n / kSide / 3, kSide});
  return out;
}

// Two steps and every further entry at one shape and alignment. Among the gradients are NaN and
// Inf, unless a norm would spread them.
void run_case(const Variant& v, const Formats& f, const Dims& shape, bool unaligned, uint64_t seed,
              const SweepOptions& o, Verdict& verdict) {
  const Device device = o.device;
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  Buffer param(f.param, n, unaligned, device), grad(f.grad, n, unaligned, device);
  param.fill_normal(seed, 1);
  const std::string where = fmt::format("{} {} [{}]{}", v.name, to_string(f),
                                        fmt::join(shape, ", "), unaligned ? " unaligned" : "");
  Options options;
  options.threads = 1;
  options.seed = seed;
  options.device = device;
  options.mode = o.mode;
  options.allocator = reachable_allocator(device);
  Optimizer optimizer(v.rule->info.name, options);
  GroupOptions group;
  group.hyper = v.hyper;
  group.rounding = f.rounding;
  group.state = StatePolicy::all(f.state);
  group.state_rounding = f.state_rounding;
  const Role role = shape.size() < 2 ? Role::bias : Role::hidden;
  optimizer.add_group({{"p", shape, param.data(), grad.data(), f.param, f.grad, role}}, group);
  Buffer matrix(f.param, 4, false, device), matrix_grad(f.grad, 4, false, device);
  if (v.rule->needs_matrix) {
    matrix.fill_normal(seed, 1);
    matrix_grad.fill_normal(seed, 1);
    optimizer.add_group(
        {{"matrix", {2, 2}, matrix.data(), matrix_grad.data(), f.param, f.grad, Role::hidden}},
        group);
  }
  Reference reference(*v.rule, f, full_hyper(v));
  const auto judge = [&](const std::string& when) {
    std::string failure;
    const double worst = reference.worst_after_step(optimizer, 0, &failure);
    verdict.worst = std::max(verdict.worst, worst);
    if (worst > 1 && verdict.failure.empty()) {
      verdict.failure = fmt::format("{} {}: {}", where, when, failure);
    }
  };
  for (int step = 0; step < 2; ++step) {
    grad.fill_normal(seed + 1 + static_cast<uint64_t>(step), step == 0 ? 0.1 : 0.03);
    if (n > 100 && v.rule->passes.empty()) {
      grad.set(3, __builtin_nan(""));
      grad.set(n - 2, kInfinity);
      grad.set(7, 0);
    }
    const bool judged = step == 1 || n < 100000;
    if (judged) reference.before_step(optimizer, 0, grad.data());
    optimizer.step();
    wait_for(device);
    reference.advance();
    if (judged) judge(fmt::format("step {}", step + 1));
  }
  for (size_t e = 1; e < v.rule->entries.size(); ++e) {
    reference.before_entry(static_cast<int>(e), optimizer, 0, grad.data());
    optimizer.run(v.rule->entries[e].name);
    wait_for(device);
    judge(v.rule->entries[e].name);
  }
  const auto check_guards = [&](const Buffer& b, const char* what) {
    const std::optional<int64_t> at = b.broken_guard();
    if (!at || !verdict.failure.empty()) return;
    verdict.failure =
        fmt::format("{}: wrote outside its memory, at byte {} of the {}", where, *at, what);
    verdict.worst = kInfinity;
  };
  check_guards(param, "parameter");
  check_guards(grad, "gradient");
  ++verdict.cases;
}

void run_formats(const Variant& v, const SweepOptions& o, Verdict& verdict) {
  const std::vector<Formats> formats = all_formats();
  std::vector<Verdict> each(formats.size());
  const auto count = static_cast<int>(formats.size());
  // Formats are spread over threads; the optimizers inside then find the pool busy.
  std::atomic<int> next{0};
  auto work = [&](int, int) {
    for (int i = next++; i < count; i = next++) {
      for (int64_t n : o.sizes) {
        // All elements count for a norm, and their reference is slow: formats take turns at shapes.
        const bool norms = !v.rule->passes.empty();
        if (norms && n > 100000 && i % 27 != 0) continue;
        int turn = i;
        for (const Dims& shape : shapes_of(*v.rule, n)) {
          if (norms && n > 300 && n <= 100000 && turn++ % 3 != 0) continue;
          for (bool unaligned : {false, true}) {
            const auto at = static_cast<size_t>(i);
            run_case(v, formats[at], shape, unaligned, o.seed + 100 * at, o, each[at]);
          }
        }
      }
    }
  };
  cpu::ThreadPool::instance().run(o.threads > 0 ? o.threads : cpu::default_threads(), work);
  for (const Verdict& e : each) {
    verdict.cases += e.cases;
    verdict.worst = std::max(verdict.worst, e.worst);
    if (verdict.failure.empty()) verdict.failure = e.failure;
  }
}

// GALLOP_FORCE_ISA for the time of a scope: the optimizers inside choose as a user's would.
class ForcedIsa {
 public:
  explicit ForcedIsa(const std::string& isa) {
    const char* before = std::getenv("GALLOP_FORCE_ISA");
    if (before != nullptr) before_ = before;
    setenv("GALLOP_FORCE_ISA", isa.c_str(), 1);
  }
  ~ForcedIsa() {
    before_.empty() ? unsetenv("GALLOP_FORCE_ISA") : setenv("GALLOP_FORCE_ISA", before_.c_str(), 1);
  }
  ForcedIsa(const ForcedIsa&) = delete;
  ForcedIsa& operator=(const ForcedIsa&) = delete;

 private:
  std::string before_;
};

}  // namespace

Hyper judgeable(const Rule& rule) {
  Hyper out;
  // Clipping is the optimizer's, and has tests of its own.
  if (rule.clip != nullptr) out.emplace_back("max_grad_norm", 0);
  // After a product of matrices, an element that should be nearly zero is as good as random, and
  // so is what it is when divided by its size.
  if (rule.stages != 0) out.emplace_back("eps", 1e-3);
  // The eigenvectors of larger matrices take the reference minutes.
  if (rule.info.knob("max_precond_dim") >= 0) out.emplace_back("max_precond_dim", 64);
  return out;
}

std::regex parse_pattern(const std::string& text) {
  try {
    return std::regex(text, std::regex::ECMAScript);
  } catch (const std::regex_error& e) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("'{}' is not a regular expression: {}", text, e.what()));
  }
}

std::string to_string(const Formats& f) {
  std::string text =
      fmt::format("param={} grad={}", gallop::to_string(f.param), gallop::to_string(f.grad));
  if (size_of(f.param) == 2) text += fmt::format(" rounding={}", gallop::to_string(f.rounding));
  text += fmt::format(" state={}", f.param == DType::f64 ? "fp64" : gallop::to_string(f.state));
  if (f.state == StateFormat::bf16) text += fmt::format("/{}", gallop::to_string(f.state_rounding));
  return text;
}

std::vector<Formats> all_formats() {
  using enum Rounding;
  const std::vector<std::pair<DType, Rounding>> params = {
      {DType::f32, nearest},    {DType::bf16, nearest},   {DType::bf16, stochastic},
      {DType::bf16, master},    {DType::bf16, remainder}, {DType::f16, nearest},
      {DType::f16, stochastic}, {DType::f16, master}};
  const std::vector<std::pair<StateFormat, Rounding>> states = {
      {StateFormat::f32, nearest}, {StateFormat::bf16, nearest}, {StateFormat::bf16, stochastic}};
  std::vector<Formats> out = {{DType::f64, DType::f64, nearest, StateFormat::f32, nearest}};
  for (const auto& [param, rounding] : params) {
    for (DType grad : {DType::f32, DType::bf16, DType::f16}) {
      for (const auto& [state, state_rounding] : states) {
        out.push_back({param, grad, rounding, state, state_rounding});
      }
    }
  }
  // Formats that share scales take turns at the others.
  size_t turn = 0;
  for (StateFormat state :
       {StateFormat::q8, StateFormat::bnb8, StateFormat::q4, StateFormat::fp8}) {
    const DType grads[] = {DType::f32, DType::bf16, DType::f16};
    for (size_t i = 0; i < params.size(); i += 2, ++turn) {
      const auto& [param, rounding] = params[(i + (i > 0 ? turn : 0)) % params.size()];
      out.push_back({param, grads[turn % 3], rounding, state, nearest});
    }
  }
  return out;
}

lab::Table sweep(const SweepOptions& o) {
  const std::regex only = parse_pattern(o.only);
  std::vector<Variant> variants;
  for (const std::string& name : o.names.empty() ? rule_names() : o.names) {
    if (!std::regex_search(name, only)) continue;
    for (Variant& v : variants_of(find_rule(name))) variants.push_back(std::move(v));
  }
  if (variants.empty()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("no optimizer matches '{}'", o.only));
  }
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  std::vector<std::string> isas = o.isas;
  if (o.device.kind == Device::Kind::cuda) isas = {"cuda"};
  if (isas.empty()) isas = cpu::isas_here();
  for (const std::string& isa : isas) {
    if (isa == "cuda") continue;
    cpu::isa_index(isa);
    if (!cpu::runs_here(isa)) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("instruction set '{}': this CPU cannot run it, expected one of {}",
                              isa, fmt::join(cpu::isas_here(), ", ")));
    }
  }

  lab::Table table;
  table.title = "kernels against the double-precision reference";
  table.columns = {"optimizer", "isa", "status", "cases", "worst_over_bound", "detail"};
  lab::Progress progress("check", static_cast<int64_t>(variants.size() * isas.size()));
  for (const Variant& v : variants) {
    for (const std::string& isa : isas) {
      std::optional<ForcedIsa> forced;
      if (isa != "cuda") forced.emplace(isa);
      Verdict verdict;
      run_formats(v, o, verdict);
      lab::Row row;
      row.set("optimizer", v.name).set("isa", isa).set("mode", to_string(o.mode));
      row.set("status", verdict.worst <= 1 ? "pass" : "fail").set("cases", verdict.cases);
      row.set("worst_over_bound", verdict.worst);
      if (!verdict.failure.empty()) row.set("detail", verdict.failure);
      table.rows.push_back(std::move(row));
      progress.advance(1, v.name);
    }
  }
  return table;
}

}  // namespace gallop::check
