// SPDX-License-Identifier: MIT
// Before attention is timed: does it compute what fp64 does?
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/attention_bench.h"

namespace gallop::bench {
namespace {

// Some of `columns` columns, from `first` on.
double relative_error(const std::vector<double>& a, const std::vector<double>& exact,
                      int64_t columns, int64_t first, int64_t some) {
  double off = 0, all = 0;
  for (size_t row = 0; row < exact.size(); row += static_cast<size_t>(columns)) {
    for (size_t i = row + static_cast<size_t>(first); i < row + static_cast<size_t>(first + some);
         ++i) {
      off += (a[i] - exact[i]) * (a[i] - exact[i]);
      all += exact[i] * exact[i];
    }
  }
  return std::sqrt(off / std::max(all, 1e-300));
}

AttentionAgreement compare_at(const AttentionPlace& place, AttentionCase c, int64_t time,
                              uint64_t seed) {
  constexpr int64_t kWide = 1024;  // one head of which is enough to add up
  c.shape = {2, c.shape.width > kWide ? 1 : 2, time, c.shape.width};
  AttentionCase plain = c;
  plain.compute = gpt::Compute::fp64;
  plain.how = gpt::Attention::naive;
  const auto ops = attention_ops(place, c);
  const auto reference = attention_ops({{}, place.threads, true}, plain);
  AttentionWork ours(*ops, c), exact(*reference, plain);
  ours.fill(seed);
  exact.fill_as(ours);                         // as they were rounded
  for (int i = 0; i < 3; ++i) ours.run(0, 2);  // as it is timed: repeated, recorded, replayed
  exact.run(0, 1);
  AttentionAgreement a{0, "", time};
  const auto compare = [&](const char* what, double error) {
    if (a.worst.empty() || !(error <= a.error)) a.error = error, a.worst = what;
  };
  const int64_t n = ours.columns();
  compare("the output", relative_error(ours.output(), exact.output(), n, 0, n));
  const std::vector<double> d = ours.gradients(), d_exact = exact.gradients();
  compare("the gradient of queries", relative_error(d, d_exact, 3 * n, 0, n));
  compare("the gradient of keys", relative_error(d, d_exact, 3 * n, n, n));
  compare("the gradient of values", relative_error(d, d_exact, 3 * n, 2 * n, n));
  return a;
}

AttentionAgreement compare_over(const AttentionPlace& place, const AttentionCase& c, uint64_t seed,
                                int64_t shorter, int64_t longer) {
  const AttentionAgreement a = compare_at(place, c, shorter, seed);
  AttentionAgreement b = compare_at(place, c, longer, seed);
  if (b.error >= a.error || std::isnan(b.error)) return b;
  b.error = a.error;
  b.worst = a.worst;
  return b;
}

}  // namespace

double attention_bound(gpt::Compute compute) {
  switch (compute) {
    case gpt::Compute::fp32:
      return 1e-5;
    case gpt::Compute::tf32:
    case gpt::Compute::fp16:
      return 3e-3;
    case gpt::Compute::bf16:
      return 2e-2;
    case gpt::Compute::fp64:
      return 1e-12;
  }
  return 0;
}

AttentionAgreement compare_attention(const AttentionPlace& place, const AttentionCase& c,
                                     uint64_t seed) {
  try {
    return compare_over(place, c, seed, 37, 130);  // beyond one tile of 32, 64 or 128
  } catch (const Error& e) {
    if (e.code() != ErrorCode::unsupported) throw;
  }
  return compare_over(place, c, seed, 128, 256);  // all that older versions of cuDNN do
}

void require_agreement(const AttentionAgreement& a, const AttentionCase& c) {
  const double bound = attention_bound(c.compute);
  if (a.error <= bound) return;
  throw Error(ErrorCode::device,
              fmt::format("{} of {} attention in {}, heads {} wide, is {:.2g} off fp64's over at "
                          "most {} positions, expected at most {:.0e}: it is not timed",
                          a.worst, attention_name(c.how), gpt::to_string(c.compute), c.shape.width,
                          a.error, a.time, bound));
}

}  // namespace gallop::bench
