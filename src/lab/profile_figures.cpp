// SPDX-License-Identifier: MIT
#include "lab/profile_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/statistics.h"
#include "gallop/error.h"

namespace gallop::lab {
namespace {

constexpr double kTail = 0.025;
// Of the variance of a median of several, next to that of their mean: pi / 2 for many.
constexpr double kMedianVariance = 1.5708;

double tokens_per_s(const TrialSpec& spec, const TrialUsage& usage) {
  return static_cast<double>(spec.batch * context_of(spec)) / usage.later_step_s();
}

ProfileFigure of_usage(
    const char* name,
    const std::function<std::optional<double>(const TrialSpec&, const TrialUsage&)>& of) {
  return {name, false, [of](const TrialSpec& spec, const TrialResult& r) -> std::optional<double> {
            if (r.end != TrialEnd::finished || !r.usage || r.usage->step_s.empty()) return {};
            return of(spec, *r.usage);
          }};
}

double variance_of_median(size_t n) {
  return (n > 2 ? kMedianVariance : 1) / static_cast<double>(n);
}

}  // namespace

const std::vector<ProfileFigure>& profile_figures() {
  using Spec = TrialSpec;
  using Use = TrialUsage;
  static const std::vector<ProfileFigure> all = {
      of_usage("data_s", [](const Spec&, const Use& u) { return u.data_s; }),
      of_usage("prepare_s", [](const Spec&, const Use& u) { return u.prepare_s; }),
      of_usage("gpu_util", [](const Spec&, const Use& u) { return u.gpu_util; }),
      of_usage("cpu_util", [](const Spec&, const Use& u) { return u.cpu_util; }),
      of_usage("host_mb", [](const Spec&, const Use& u) { return u.host_mb; }),
      {"device_mb", true,
       [](const Spec&, const TrialResult& r) -> std::optional<double> {
         if (r.end != TrialEnd::finished) return {};
         return r.memory_mb;
       }},
      of_usage("driver_mb", [](const Spec&, const Use& u) { return u.driver_mb; }),
      of_usage("tokens_per_s", tokens_per_s),
      of_usage("total_s", [](const Spec&, const Use& u) { return u.total_s; }),
      of_usage("warm_total_s", [](const Spec&, const Use& u) { return u.total_s - u.prepare_s; })};
  return all;
}

const ProfileFigure& profile_figure(std::string_view name) {
  for (const ProfileFigure& f : profile_figures()) {
    if (f.name == name) return f;
  }
  throw Error(ErrorCode::invalid_argument, fmt::format("'{}' is no figure of a profile", name));
}

Spread spread_of(std::span<const std::vector<double>> by_optimizer) {
  Spread out;
  double squares = 0;
  for (const std::vector<double>& values : by_optimizer) {
    if (values.size() < 2) continue;
    if (!std::all_of(values.begin(), values.end(), [](double x) { return x > 0; })) continue;
    std::vector<double> logs(values.size());
    std::transform(values.begin(), values.end(), logs.begin(),
                   [](double x) { return std::log(x); });
    const double deviation = bench::stddev(logs);
    squares += deviation * deviation * static_cast<double>(values.size() - 1);
    out.freedom += values.size() - 1;
  }
  if (out.freedom > 0) out.deviation = std::sqrt(squares / static_cast<double>(out.freedom));
  return out;
}

double noise_band(const Spread& spread, size_t n, size_t m) {
  if (spread.freedom == 0 || n == 0 || m == 0) return std::numeric_limits<double>::infinity();
  const double deviation =
      spread.deviation * std::sqrt(variance_of_median(n) + variance_of_median(m));
  return std::expm1(bench::student_quantile(kTail, spread.freedom) * deviation);
}

std::optional<Change> change_of(std::span<const double> a, std::span<const double> b,
                                const Spread& spread, bool exact) {
  if (a.empty() || b.empty() || !(bench::median(a) > 0)) return {};
  Change out;
  if (exact) {
    out.ratio = bench::median(b) / bench::median(a);
    out.interval = {out.ratio, out.ratio};
    if (out.ratio != 1) out.claim = out.ratio < 1 ? Claim::less : Claim::greater;
    return out;
  }
  const bench::Verdict verdict = bench::compare(a, b);
  out.ratio = verdict.ratio;
  out.interval = verdict.interval;
  out.band = noise_band(spread, a.size(), b.size());
  out.tested = !verdict.too_few;
  const bool above = out.interval.low > 1 + out.band;
  const bool below = out.interval.high < 1 / (1 + out.band);
  if (std::min(a.size(), b.size()) < 2) {
    out.claim = Claim::too_few;
  } else if (above && (verdict.too_few || verdict.verdict == bench::Finding::greater)) {
    out.claim = Claim::greater;
  } else if (below && (verdict.too_few || verdict.verdict == bench::Finding::less)) {
    out.claim = Claim::less;
  }
  return out;
}

int64_t repeats_to_tell(const Change& change, size_t repeats) {
  const double difference = std::abs(std::log(change.ratio));
  // Half of the interval is about as wide as the noise band, and both must be left behind.
  const double times = 2 * std::log1p(change.band) / difference;
  const double wanted = std::ceil(static_cast<double>(repeats) * times * times);
  constexpr double kTooMany = 1e6, kTestable = 4;
  return static_cast<int64_t>(std::clamp(wanted, kTestable, kTooMany));
}

}  // namespace gallop::lab
