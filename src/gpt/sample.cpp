// SPDX-License-Identifier: MIT
#include "gpt/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/random.h"
#include "data/loader.h"
#include "gallop/error.h"

namespace gallop::gpt {
namespace {

constexpr Bits64 kTokens = 3;  // apart from what else is drawn with the same seed: data/loader.cpp

[[noreturn]] void invalid(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

}  // namespace

void check_sample(const Config& config, std::span<const int32_t> prompt, const SampleOptions& o) {
  if (o.tokens < 0) invalid(fmt::format("{} tokens to sample, expected 0 or more", o.tokens));
  if (!(o.temperature >= 0) || std::isinf(o.temperature)) {
    invalid(fmt::format("temperature {}, expected a number of at least 0", o.temperature));
  }
  if (o.top_k < 0) invalid(fmt::format("the {} likeliest tokens, expected 0 or more", o.top_k));
  if (prompt.empty()) invalid("a prompt without tokens, expected at least one");
  for (int32_t token : prompt) {
    if (token >= 0 && token < config.vocabulary) continue;
    invalid(fmt::format("token {} in a prompt, expected 0 to {}", token, config.vocabulary - 1));
  }
}

int32_t choose(std::span<const double> logits, double uniform, const SampleOptions& o) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    const double x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const int32_t best = *std::min_element(order.begin(), order.end(), likelier);
  if (o.temperature == 0) return best;
  if (o.top_k > 0 && o.top_k < static_cast<int64_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + o.top_k - 1, order.end(), likelier);
    order.resize(static_cast<size_t>(o.top_k));
    std::sort(order.begin(), order.end());
  }
  std::vector<double> sums;
  double sum = 0;
  for (int32_t token : order) {
    const double below = logits[static_cast<size_t>(token)] - logits[static_cast<size_t>(best)];
    sums.push_back(sum += std::exp(below / o.temperature));
  }
  const auto at = std::upper_bound(sums.begin(), sums.end(), uniform * sum);
  return at == sums.end() ? best : order[static_cast<size_t>(at - sums.begin())];
}

std::vector<int32_t> sample(Model& model, std::span<const int32_t> prompt, const SampleOptions& o) {
  check_sample(model.config(), prompt, o);
  const int64_t time = model.options().time;
  const size_t all = static_cast<size_t>(model.options().batch * time);
  const Bits64 key = combine(o.seed, kTokens);
  std::vector<int32_t> text(prompt.begin(), prompt.end());
  data::Batch batch;
  for (int64_t i = 0; i < o.tokens; ++i) {
    const auto seen = std::min<int64_t>(time, static_cast<int64_t>(text.size()));
    batch.inputs.assign(text.end() - seen, text.end());
    batch.inputs.resize(all, 0);
    batch.targets.assign(all, -1);
    data::index_by_token(batch, static_cast<int>(model.config().vocabulary));
    const std::vector<double> logits = model.logits(model.upload(batch), seen - 1);
    if (!std::all_of(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); })) {
      invalid(fmt::format("logits at token {} that are not finite, expected numbers", i));
    }
    const Bits64 bits = combine(key, static_cast<Bits64>(i));
    text.push_back(choose(logits, static_cast<double>(bits >> 11) * 0x1p-53, o));
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

}  // namespace gallop::gpt
