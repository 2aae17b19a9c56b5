// SPDX-License-Identifier: MIT
#include "check/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "check/data.h"
#include "core/convert.h"

namespace gallop::check {
namespace {

// First-order bounds, products of errors left out: slack for those, at most some 10 roundings of
// 2^-24 each.
constexpr double kSlack = 1 + 1e-6;

double roundoff(DType param) { return param == DType::f64 ? 0x1p-53 : 0x1p-24; }

// Kernels on a GPU take quotients and roots from approximations where states are codes: within
// 2^-22.
class Quotients {
 public:
  explicit Quotients(bool rough) : before_(Bounded::arithmetic.of_quotient) {
    Bounded::arithmetic.of_quotient = rough ? 4 : 1;
  }
  ~Quotients() { Bounded::arithmetic.of_quotient = before_; }
  Quotients(const Quotients&) = delete;
  Quotients& operator=(const Quotients&) = delete;

 private:
  double before_;
};

// How far a square is from having orthonormal rows.
double from_orthonormal(const StateView& v) {
  const auto n = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(v.size))));
  double worst = 0;
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t other = 0; other <= row; ++other) {
      double dot = 0;
      for (int64_t i = 0; i < n; ++i) {
        dot += read_element(v.data, v.dtype, row * n + i) *
               read_element(v.data, v.dtype, other * n + i);
      }
      worst = max(worst, std::abs(dot - (row == other ? 1 : 0)));
    }
  }
  return worst;
}

}  // namespace

Bounded Reference::state_before(const StateView& v, int64_t i) {
  const double value = read_state(v, i);
  // A code is turned into its value in fp32, by a few roundings.
  constexpr double kRoundings = 8;
  return v.block == 0 ? Bounded::exact(value) : Bounded(value, kRoundings * std::abs(value));
}

Reference::Reference(const Rule& rule, const Formats& formats, std::vector<double> hyper)
    : rule_(rule),
      formats_(formats),
      hyper_(std::move(hyper)),
      present_(rule.present_states(hyper_.data())),
      scalars_(rule.scalars) {
  scalars_.resize(detail::kMaxScalars);
}

int64_t Reference::next_judged(int64_t i, int64_t n) {
  const bool sparse = n > kAllJudged && i >= kEnds && i + kStride < n - kEnds;
  return i + (sparse ? kStride : 1);
}

double Reference::value_before(const Optimizer& o, size_t param, int64_t i) const {
  const Param& p = o.param(param);
  const void* low = o.low_bits(param);
  if (low != nullptr && formats_.rounding == Rounding::master) {
    return read_element(low, DType::f32, i);
  }
  if (low != nullptr) {
    const auto at = static_cast<size_t>(i);
    return join_float(static_cast<const Half*>(p.data)[at], static_cast<const Half*>(low)[at]);
  }
  return read_element(p.data, p.dtype, i);
}

void Reference::before_step(const Optimizer& optimizer, size_t param, const void* grad) {
  expect(0, clock_, optimizer, param, grad);
}

void Reference::before_entry(int entry, const Optimizer& optimizer, size_t param,
                             const void* grad) {
  expect(entry, {clock_.t - 1, false, 1}, optimizer, param, grad);
}

void Reference::expect(int entry, Clock clock, const Optimizer& optimizer, size_t param,
                       const void* grad) {
  const Param& p = optimizer.param(param);
  const size_t width = 1 + rule_.info.states.size();
  int64_t n = 1;
  for (int64_t d : p.shape) n *= d;
  wanted_.clear();
  double coef[detail::kMaxCoefs];
  std::vector<double> scalars = scalars_;
  rule_.coef(hyper_.data(), clock, scalars.data(), coef);
  writes_ = rule_.passes.empty() ? rule_.entries[static_cast<size_t>(entry)].writes : ~0u;
  if (!rule_.passes.empty()) return expect_norms(coef, optimizer, param, grad);
  const auto views = optimizer.states(param);
  const bool codes =
      std::any_of(views.begin(), views.end(), [](const StateView& v) { return v.block != 0; });
  const Quotients quotients(codes && optimizer.options().device.kind == Device::Kind::cuda);
  for (int64_t i = 0; i < n; i = next_judged(i, n)) {
    wanted_.resize(wanted_.size() + width, Bounded::exact(0));
    Bounded* at = wanted_.data() + wanted_.size() - width;
    at[0] = Bounded::exact(value_before(optimizer, param, i));
    size_t view = 0;
    bool resets = false;
    for (size_t j = 0; j + 1 < width; ++j) {
      if (!(present_ >> j & 1)) continue;
      const StateView& v = views[view++];
      at[1 + j] = state_before(v, i);
      resets = resets || v.format == StateFormat::bnb8;
    }
    const Bounded g = Bounded::exact(read_element(grad, p.grad_dtype, i));
    if (resets && rule_.entries[static_cast<size_t>(entry)].grad && !std::isfinite(g.value)) {
      // As bitsandbytes: the parameter stays, and its states begin anew.
      std::fill(at + 1, at + width, Bounded::exact(0));
      continue;
    }
    rule_.reference(Bounded::arithmetic, entry, at, g, at + 1, coef);
  }
}

double Reference::judge(double got, const Bounded& want, DType type, bool stochastic) const {
  if (!std::isfinite(want.value)) return std::isfinite(got) ? kInfinity : 0;
  if (!std::isfinite(want.error)) return 0;
  const double reach = std::abs(want.value) + want.error * roundoff(formats_.param);
  const double error = std::abs(got - want.value);
  // Beyond the largest value a format holds, infinity is the right answer.
  if (std::isinf(got) && reach > (type == DType::f16 ? 65504 : 3.38e38)) return 0;
  return std::isnan(error) ? kInfinity : error / bound(want, type, stochastic);
}

double Reference::bound(const Bounded& want, DType type, bool stochastic) const {
  const double reach = std::abs(want.value) + want.error * roundoff(formats_.param);
  const double stored = half_spacing(type, reach) * (stochastic ? 2 : 1);
  // An fp64 reference rounds like the kernel it judges, so both errors count.
  const double both = formats_.param == DType::f64 ? 2 : 1;
  return kSlack * both * want.error * roundoff(formats_.param) + stored + 0x1p-149;
}

double Reference::judge_quantised(double got, const Bounded& want, const StateView& v,
                                  int64_t i) const {
  // What cannot be stored beside others becomes zero.
  if (!std::isfinite(want.value)) return got == 0 ? 0 : kInfinity;
  if (!std::isfinite(want.error)) return 0;
  const double scale = v.scales[i / v.block];
  const double allowed = bound(want, DType::f32, false);
  // What is stored is anything this near: codes are wider apart the larger a value is, and below
  // zero they may be others than above.
  const double off = want.error * roundoff(formats_.param);
  const double least = v.nonneg ? std::max(0.0, want.value - off) : want.value - off;
  const double within = std::max(stored_within(v.format, v.nonneg, least, scale),
                                 stored_within(v.format, v.nonneg, want.value + off, scale));
  const double error = std::abs(got - want.value);
  return std::isnan(error) ? kInfinity : error / (allowed + within);
}

double Reference::worst_scale(const StateView& v, size_t j) const {
  const size_t width = 1 + rule_.info.states.size();
  if (v.size > kAllJudged) return 0;
  double worst = 0;
  for (int64_t first = 0; first < v.size; first += v.block) {
    double most = 0, allowed = 0x1p-126;
    for (int64_t i = first; i < std::min(first + v.block, v.size); ++i) {
      const Bounded& want = wanted_[static_cast<size_t>(i) * width + 1 + j];
      if (!std::isfinite(want.value)) continue;
      if (!std::isfinite(want.error)) return 0;
      most = std::max(most, std::abs(want.value));
      allowed = std::max(allowed, bound(want, DType::f32, false));
    }
    worst = std::max(worst, std::abs(v.scales[first / v.block] - most) / allowed);
  }
  if (std::isnan(worst)) return kInfinity;
  return worst;
}

double Reference::worst_after_step(const Optimizer& optimizer, size_t param,
                                   std::string* failure) const {
  const Param& p = optimizer.param(param);
  const size_t width = 1 + rule_.info.states.size();
  const bool low = optimizer.low_bits(param) != nullptr;
  const auto views = optimizer.states(param);
  double worst = 0;
  const auto note = [&](double ratio, const std::string& what, int64_t i, double got, double want) {
    if (ratio > 1 && worst <= 1 && failure != nullptr) {
      *failure = fmt::format("{}[{}] is {:.9g}, expected {:.9g} ({:.3g} times the bound)", what, i,
                             got, want, ratio);
    }
    worst = std::max(worst, ratio);
  };
  int64_t n = 1, element = 0;
  for (int64_t d : p.shape) n *= d;
  const DType stored = low ? DType::f32 : p.dtype;
  const bool random_param = formats_.rounding == Rounding::stochastic && size_of(p.dtype) == 2;
  double change = 0, error = 0, allowed = 0;  // squares of norms
  for (const Bounded* want = wanted_.data(); element < n;
       element = next_judged(element, n), want += width) {
    const double got = value_before(optimizer, param, element);
    if (judged_whole_) {
      const auto square = [](double x) { return x * x; };
      const auto at = static_cast<size_t>(want - wanted_.data()) / width;
      change += square(want[0].value - before_[at]);
      error += square(want[0].value - got);
      allowed += square(bound(want[0], stored, random_param));
    } else {
      note(judge(got, want[0], stored, random_param), "parameter", element, got, want[0].value);
    }
    if (formats_.rounding == Rounding::master && low) {
      Half rounded = 0;
      write_element(&rounded, p.dtype, 0, got);
      const double copy = read_element(p.data, p.dtype, element);
      const double expected = read_element(&rounded, p.dtype, 0);
      note(copy == expected || std::isnan(expected) ? 0 : kInfinity, "16-bit copy", element, copy,
           expected);
    }
    size_t view = 0;
    for (size_t j = 0; j + 1 < width && view < views.size(); ++j) {
      if (views[view].name != rule_.info.states[j].name) continue;
      const StateView& v = views[view++];
      if (!has_values(j) || after_stage(j)) continue;
      const double state = read_state(v, element);
      if (v.block != 0) {
        note(judge_quantised(state, want[1 + j], v, element), v.name, element, state,
             want[1 + j].value);
        continue;
      }
      const bool random = v.dtype == DType::bf16 && formats_.state_rounding == Rounding::stochastic;
      note(judge(state, want[1 + j], v.dtype, random), v.name, element, state, want[1 + j].value);
    }
  }
  for (const StateView& v : views) {
    for (size_t j = 0; v.block != 0 && j + 1 < width; ++j) {
      if (v.name != rule_.info.states[j].name || after_stage(j) || !(writes_ >> j & 1)) continue;
      note(worst_scale(v, j), v.name + ": a scale", 0, 0, 0);
    }
  }
  if (judged_whole_) {
    const double share = p.dtype == DType::f64                                  ? kWhole64
                         : optimizer.options().device.kind == Device::Kind::cpu ? kWhole32
                                                                                : kWhole16;
    const double off = std::sqrt(error), most = share * std::sqrt(change) + std::sqrt(allowed);
    note(std::isnan(off) ? kInfinity
         : off == 0      ? 0
                         : off / most,
         "error of the parameter's change, norm", 0, off, most);
    for (const StateView& v : views) {
      for (size_t j = 0; j + 1 < width; ++j) {
        if (v.name != rule_.info.states[j].name || !after_stage(j)) continue;
        const double ratio = judge_whole(v, j, share);
        note(ratio, "norm of the error of " + v.name + " over its bound", 0, ratio, 1);
      }
    }
  }
  for (const StateView& v : views) {
    for (size_t j = 0; j < wanted_vectors_.size(); ++j) {
      if (has_values(j) || after_stage(j) || v.name != rule_.info.states[j].name) continue;
      for (int64_t i = 0; i < v.size; ++i) {
        const Bounded& want = wanted_vectors_[j][static_cast<size_t>(i)];
        const double got = read_element(v.data, v.dtype, i);
        note(judge(got, want, v.dtype, false), v.name, i, got, want.value);
      }
    }
  }
  return worst;
}

bool Reference::after_stage(size_t j) const {
  if (!judged_whole_) return false;
  const int first = __builtin_ctz(rule_.stages);
  for (size_t p = static_cast<size_t>(first) + 1; p < rule_.passes.size(); ++p) {
    if (rule_.passes[p].writes >> j & 1) return true;
  }
  return is_square(rule_.info.states[j].per);
}

bool Reference::has_values(size_t j) const { return rule_.info.states[j].per == StatePer::element; }

// A basis may have other signs, and what is turned by it with them.
double Reference::judge_whole(const StateView& v, size_t j, double share) const {
  if (rule_.info.states[j].basis) {
    const double off = from_orthonormal(v);
    return std::isnan(off) ? kInfinity : off / share;
  }
  const size_t width = 1 + rule_.info.states.size();
  double error = 0, norm = 0;
  const Bounded* want = wanted_.data();
  for (int64_t i = 0; i < v.size; want += width) {
    const double value =
        has_values(j) ? want[1 + j].value : wanted_vectors_[j][static_cast<size_t>(i)].value;
    error += std::pow(std::abs(read_state(v, i)) - std::abs(value), 2);
    norm += value * value;
    i = has_values(j) ? next_judged(i, v.size) : i + 1;
  }
  if (std::isnan(error)) return kInfinity;
  return error == 0 ? 0 : std::sqrt(error) / (share * std::sqrt(norm));
}

void Reference::advance() {
  double coef[detail::kMaxCoefs];
  rule_.coef(hyper_.data(), clock_, scalars_.data(), coef);
  clock_ = {clock_.t + 1, false, 1};
}

}  // namespace gallop::check
