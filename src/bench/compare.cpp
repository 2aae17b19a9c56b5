// SPDX-License-Identifier: MIT
#include "bench/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/random.h"
#include "gallop/error.h"

namespace gallop::bench {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

void check(std::span<const double> samples) {
  if (samples.empty()) refuse("comparison got 0 samples, expected at least one");
  for (size_t i = 0; i < samples.size(); ++i) {
    if (std::isfinite(samples[i]) || samples[i] == kInfinity) continue;
    refuse(fmt::format("sample {} is {}, expected a number or infinity", i, samples[i]));
  }
}

std::vector<double> sorted(std::span<const double> samples) {
  check(samples);
  std::vector<double> out(samples.begin(), samples.end());
  std::sort(out.begin(), out.end());
  return out;
}

void require_no_negative(const std::vector<double>& ordered) {
  if (ordered.front() >= 0) return;
  refuse(fmt::format("a sample is {}, expected none below 0 for a ratio", ordered.front()));
}

void check(const Bootstrap& how) {
  if (!(how.level > 0 && how.level < 1)) {
    refuse(fmt::format("confidence level is {}, expected a number between 0 and 1", how.level));
  }
  if (how.resamples < 99) {
    refuse(fmt::format("bootstrap got {} resamples, expected at least 99", how.resamples));
  }
}

double median_of_ordered(std::span<const double> x) {
  const size_t n = x.size();
  return n % 2 == 1 ? x[n / 2] : x[n / 2 - 1] / 2 + x[n / 2] / 2;
}

double normal_tail(double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); }

// P(T > t) of Student's t: the finite sums in the angle atan(t / sqrt(freedom)).
double student_tail(double t, size_t freedom) {
  const double angle = std::atan(t / std::sqrt(static_cast<double>(freedom)));
  const double cosine = std::cos(angle);
  const bool odd = freedom % 2 == 1;
  double term = odd ? cosine : 1;
  double sum = freedom == 1 ? 0 : term;
  for (size_t k = odd ? 2 : 1; k + 3 <= freedom; k += 2) {
    term *= cosine * cosine * static_cast<double>(k) / static_cast<double>(k + 1);
    sum += term;
  }
  const double inside = std::sin(angle) * sum;
  return 0.5 - (odd ? (angle + inside) / std::acos(-1.0) : inside / 2);
}

// The tail of a normal, as far out as `tail` is for Student's t with the spread that a bootstrap
// sees, which divides squares by n and not by n - 1.
double widened(double tail, size_t freedom, size_t n) {
  if (freedom >= 1000) return tail;
  return normal_tail(student_quantile(tail, freedom) *
                     std::sqrt(static_cast<double>(n) / static_cast<double>(n - 1)));
}

// The k-th smallest and k-th largest, k being `tail` of them. NaN may be anything: `least` or
// infinity.
Interval ends(std::vector<double> values, double tail, double least) {
  const auto nan =
      std::partition(values.begin(), values.end(), [](double value) { return !std::isnan(value); });
  const auto unknown = static_cast<size_t>(values.end() - nan);
  const double share = tail * static_cast<double>(values.size() + 1);
  const size_t k = std::max<size_t>(1, static_cast<size_t>(share + 1e-9));
  if (k <= unknown) return {least, kInfinity};
  values.erase(nan, values.end());
  std::sort(values.begin(), values.end());
  return {values[k - unknown - 1], values[values.size() - (k - unknown)]};
}

Interval ratio_interval(const std::vector<double>& a, const std::vector<double>& b,
                        const Bootstrap& how) {
  check(how);
  require_no_negative(a);
  require_no_negative(b);
  if (std::lexicographical_compare(b.begin(), b.end(), a.begin(), a.end())) {
    const Interval inverse = ratio_interval(b, a, how);
    return {1 / inverse.high, 1 / inverse.low};
  }
  if (std::min(a.size(), b.size()) == 1) return {0, kInfinity};
  Resampler below(a, how.seed, 0);
  Resampler above(b, how.seed, 1);
  std::vector<double> ratios(how.resamples);
  for (size_t i = 0; i < ratios.size(); ++i) {
    const double bottom = median_of_ordered(below.draw(i));
    ratios[i] = median_of_ordered(above.draw(i)) / bottom;
  }
  return ends(std::move(ratios), (1 - how.level) / 2, 0);
}

// Twice the mean rank of each sample of both, so that ties keep it whole; a's first.
struct Ranks {
  std::vector<size_t> doubled;
  double ties = 0;  // sum of t^3 - t over groups of t equal samples
};

Ranks rank(std::span<const double> a, std::span<const double> b) {
  std::vector<double> all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  const std::vector<double> ordered = sorted(all);
  Ranks ranks;
  for (const double value : all) {
    const auto [first, last] = std::equal_range(ordered.begin(), ordered.end(), value);
    ranks.doubled.push_back(
        static_cast<size_t>((first - ordered.begin()) + (last - ordered.begin())) + 1);
  }
  for (auto first = ordered.begin(); first != ordered.end();) {
    const auto last = std::upper_bound(first, ordered.end(), *first);
    const auto t = static_cast<double>(last - first);
    ranks.ties += t * t * t - t;
    first = last;
  }
  return ranks;
}

// The share of all ways to choose the first n of the ranks whose sum is at least as far from the
// mean.
double exact_p(const std::vector<size_t>& doubled, size_t n) {
  const size_t total = doubled.size() * (doubled.size() + 1);
  std::vector<std::vector<double>> ways(n + 1, std::vector<double>(total + 1));
  ways[0][0] = 1;
  for (const size_t r : doubled) {
    for (size_t k = n; k > 0; --k) {
      for (size_t sum = r; sum <= total; ++sum) ways[k][sum] += ways[k - 1][sum - r];
    }
  }
  const size_t seen =
      std::accumulate(doubled.begin(), doubled.begin() + static_cast<ptrdiff_t>(n), size_t{0});
  const auto distance = [&](size_t sum) {
    const size_t scaled = sum * doubled.size();
    return scaled > n * total ? scaled - n * total : n * total - scaled;
  };
  double all = 0;
  double extreme = 0;
  for (size_t sum = 0; sum <= total; ++sum) {
    all += ways[n][sum];
    if (distance(sum) >= distance(seen)) extreme += ways[n][sum];
  }
  return extreme / all;
}

double normal_p(double u, double n, double m, double ties) {
  const double size = n + m;
  const double variance = n * m / 12 * (size + 1 - ties / (size * (size - 1)));
  if (!(variance > 0)) return 1;  // all samples are equal
  const double distance = std::max(0.0, std::fabs(u - n * m / 2) - 0.5);
  return 2 * normal_tail(distance / std::sqrt(variance));
}

}  // namespace

double student_quantile(double tail, size_t freedom) {
  double low = 0;
  double high = 1e9;
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = (low + high) / 2;
    (student_tail(middle, freedom) > tail ? low : high) = middle;
  }
  return low;
}

double median_with_misses(std::span<const double> samples) {
  return median_of_ordered(sorted(samples));
}

Resampler::Resampler(std::span<const double> samples, uint64_t seed, uint64_t stream)
    : key_(combine(combine(0, seed), stream)),
      ordered_(sorted(samples)),
      drawn_(samples.size()),
      counts_(samples.size()) {}

std::span<const double> Resampler::draw(uint64_t number) {
  const uint64_t key = combine(key_, number);
  const size_t n = ordered_.size();
  std::fill(counts_.begin(), counts_.end(), 0);
  for (size_t i = 0; i < n; ++i) ++counts_[(combine(key, i) >> 32) * n >> 32];
  auto to = drawn_.begin();
  for (size_t i = 0; i < n; ++i) to = std::fill_n(to, counts_[i], ordered_[i]);
  return drawn_;
}

Interval bootstrap_interval(std::span<const double> samples, const Statistic& statistic,
                            const Bootstrap& how) {
  check(how);
  Resampler resampler(samples, how.seed, 0);
  const size_t n = samples.size();
  if (n == 1) return {-kInfinity, kInfinity};
  std::vector<double> values(how.resamples);
  for (size_t i = 0; i < values.size(); ++i) values[i] = statistic(resampler.draw(i));
  return ends(std::move(values), widened((1 - how.level) / 2, n - 1, n), -kInfinity);
}

Interval median_ratio_interval(std::span<const double> a, std::span<const double> b,
                               const Bootstrap& how) {
  return ratio_interval(sorted(a), sorted(b), how);
}

MannWhitney mann_whitney(std::span<const double> a, std::span<const double> b, PMethod method) {
  check(a);
  check(b);
  if (a.size() > b.size()) {
    const MannWhitney swapped = mann_whitney(b, a, method);
    return {static_cast<double>(a.size()) * static_cast<double>(b.size()) - swapped.u, swapped.p};
  }
  const Ranks ranks = rank(a, b);
  const auto n = static_cast<double>(a.size());
  const auto m = static_cast<double>(b.size());
  double u = -n * (n + 1) / 2;
  for (size_t i = 0; i < a.size(); ++i) u += static_cast<double>(ranks.doubled[i]) / 2;
  constexpr double kExactPairs = 400;
  const bool exact = method == PMethod::automatic && n * m <= kExactPairs;
  return {u, exact ? exact_p(ranks.doubled, a.size()) : normal_p(u, n, m, ranks.ties)};
}

std::vector<double> holm(std::span<const double> p_values) {
  for (const double p : p_values) {
    if (!(p >= 0 && p <= 1)) refuse(fmt::format("p-value is {}, expected a number from 0 to 1", p));
  }
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t i, size_t j) { return p_values[i] < p_values[j]; });
  std::vector<double> corrected(p_values.size());
  double largest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto left = static_cast<double>(order.size() - i);
    largest = std::max(largest, std::min(1.0, left * p_values[order[i]]));
    corrected[order[i]] = largest;
  }
  return corrected;
}

Verdict compare(std::span<const double> a, std::span<const double> b, const Bootstrap& how) {
  Verdict result;
  result.interval = median_ratio_interval(a, b, how);
  result.ratio = median_with_misses(b) / median_with_misses(a);
  const MannWhitney test = mann_whitney(a, b);
  result.p = test.p;
  // Without ties the most extreme deal, all of a on one side, is one of n + m choose n, twice.
  const double alpha = 1 - how.level;
  double smallest = 2;
  for (size_t i = 1; i <= a.size(); ++i) {
    smallest *= static_cast<double>(i) / static_cast<double>(b.size() + i);
  }
  result.too_few = smallest > alpha;
  if (result.too_few || test.p > alpha) return result;
  const double even = static_cast<double>(a.size()) * static_cast<double>(b.size()) / 2;
  if (result.interval.high < 1 && test.u > even) result.verdict = Finding::less;
  if (result.interval.low > 1 && test.u < even) result.verdict = Finding::greater;
  return result;
}

}  // namespace gallop::bench
