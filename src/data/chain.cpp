// SPDX-License-Identifier: MIT
#include "data/chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "gallop/error.h"

namespace gallop::data {
namespace {

constexpr int64_t kWhole = int64_t{1} << 32;

// Whole numbers that add up to 2^32: probabilities are then exactly what is drawn.
std::vector<int64_t> shares(const Chain::Row& row) {
  double sum = 0;
  for (const auto& s : row) sum += s.weight;
  std::vector<int64_t> parts;
  int64_t rest = kWhole;
  for (const auto& s : row) {
    const double part = std::floor(s.weight / sum * static_cast<double>(kWhole));
    parts.push_back(std::max<int64_t>(1, static_cast<int64_t>(part)));
    rest -= parts.back();
  }
  *std::ranges::max_element(parts) += rest;
  return parts;
}

double surprise(double p) { return p > 0 ? -p * std::log(p) : 0; }

}  // namespace

Chain::Chain(const ChainShape& shape, const std::function<void(int64_t, Row&)>& rows)
    : shape_(shape) {
  const std::size_t states = static_cast<std::size_t>(shape.states());
  slot_bits_ = static_cast<unsigned>(
      std::countr_zero(std::bit_ceil(static_cast<unsigned>(shape.branching))));
  slots_.resize(states << slot_bits_);
  std::vector<double> entropy(states);
  Row row;
  for (std::size_t s = 0; s < states; ++s) {
    row.clear();
    rows(static_cast<int64_t>(s), row);
    entropy[s] = put_row(static_cast<int64_t>(s), row);
  }
  stationary_ = settle();
  unigram_.resize(static_cast<std::size_t>(shape.vocabulary));
  double sum = 0;
  for (std::size_t s = 0; s < states; ++s) {
    sum += stationary_[s];
    cumulative_.push_back(sum);
    unigram_[s % unigram_.size()] += stationary_[s];
    rate_ += stationary_[s] * entropy[s];
  }
  for (double& c : cumulative_) c /= sum;
  for (double p : unigram_) unigram_entropy_ += surprise(p);
  bigram_entropy_ = average_bigram_entropy();
}

// Returns the row's entropy.
double Chain::put_row(int64_t state, const Row& row) {
  if (row.empty() || row.size() > static_cast<std::size_t>(shape_.branching)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("state {} of a chain has {} successors, expected 1 to {}", state,
                            row.size(), shape_.branching));
  }
  std::vector<int64_t> left = shares(row);
  double entropy = 0;
  for (int64_t part : left) {
    entropy += surprise(static_cast<double>(part) / static_cast<double>(kWhole));
  }
  const std::size_t count = std::size_t{1} << slot_bits_;
  left.resize(count);
  const int64_t capacity = kWhole >> slot_bits_;
  Slot* slots = &slots_[static_cast<std::size_t>(state) << slot_bits_];
  std::vector<std::size_t> low, high;
  for (std::size_t i = 0; i < count; ++i) {
    const auto token = static_cast<uint16_t>(row[i < row.size() ? i : 0].token);
    slots[i] = {0, token, token};
    (left[i] < capacity ? low : high).push_back(i);
  }
  while (!low.empty()) {
    const std::size_t taker = low.back(), giver = high.back();
    low.pop_back();
    slots[taker].threshold = static_cast<uint32_t>(left[taker]);
    slots[taker].above = slots[giver].below;
    left[giver] -= capacity - left[taker];
    if (left[giver] < capacity) {
      low.push_back(giver);
      high.pop_back();
    }
  }
  return entropy;
}

// Calls visit(token, probability); a token may come several times.
template <class Visit>
void Chain::visit(int64_t state, Visit visit) const {
  const auto first = static_cast<std::size_t>(state) << slot_bits_;
  const int64_t capacity = kWhole >> slot_bits_;
  for (std::size_t i = first; i < first + (std::size_t{1} << slot_bits_); ++i) {
    const Slot& slot = slots_[i];
    visit(slot.below, static_cast<double>(slot.threshold) / static_cast<double>(kWhole));
    visit(slot.above, static_cast<double>(capacity - slot.threshold) / static_cast<double>(kWhole));
  }
}

std::vector<double> Chain::step(const std::vector<double>& from) const {
  std::vector<double> to(from.size());
  for (int64_t s = 0; s < shape_.states(); ++s) {
    const double share = from[static_cast<std::size_t>(s)];
    if (share == 0) continue;
    const int64_t next = state(static_cast<int32_t>(s % shape_.vocabulary), 0);
    visit(s, [&](int64_t token, double p) {
      to[static_cast<std::size_t>(next + token)] += share * p;
    });
  }
  return to;
}

// Where the chain is in the long run.
std::vector<double> Chain::settle() const {
  constexpr int kMostSteps = 20000;
  constexpr double kSettled = 1e-14;
  const std::size_t states = static_cast<std::size_t>(shape_.states());
  std::vector<double> now(states, 1.0 / static_cast<double>(states));
  for (int i = 0; i < kMostSteps; ++i) {
    std::vector<double> next = step(now);
    double change = 0, sum = 0;
    for (std::size_t s = 0; s < states; ++s) {
      change += std::abs(next[s] - now[s]);
      sum += next[s];
    }
    for (double& p : next) p /= sum;
    now.swap(next);
    if (change < kSettled) return now;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("a chain of {} states that has not settled after {} steps, expected one "
                          "that forgets where it began",
                          states, kMostSteps));
}

double Chain::average_bigram_entropy() const {
  double average = 0;
  std::vector<double> joint(unigram_.size());  // of the last token and each next one
  std::vector<int32_t> seen;
  for (int32_t last = 0; last < shape_.vocabulary; ++last) {
    for (int c = 0; c < shape_.classes; ++c) {
      const int64_t s = state(c, last);
      const double share = stationary_[static_cast<std::size_t>(s)];
      if (share == 0) continue;
      visit(s, [&](int32_t token, double p) {
        double& sum = joint[static_cast<std::size_t>(token)];
        if (sum == 0 && p > 0) seen.push_back(token);
        sum += share * p;
      });
    }
    for (int32_t token : seen) {
      double& p = joint[static_cast<std::size_t>(token)];
      if (p > 0) average -= p * std::log(p / unigram(last));
      p = 0;
    }
    seen.clear();
  }
  return average;
}

void Chain::write(Bits64 key, std::span<int32_t> out) const {
  if (out.empty()) return;
  const double u = static_cast<double>(combine(key, 0) >> 11) * 0x1p-53;
  const auto vocabulary = static_cast<std::size_t>(shape_.vocabulary);
  const auto classes = static_cast<uint32_t>(shape_.classes);
  auto s = static_cast<std::size_t>(std::ranges::upper_bound(cumulative_, u) - cumulative_.begin());
  uint32_t last = static_cast<uint32_t>(s % vocabulary);
  out[0] = static_cast<int32_t>(last);
  const unsigned shift = 32 - slot_bits_;
  const uint64_t mask = (uint64_t{1} << shift) - 1;
  for (std::size_t i = 1; i < out.size(); ++i) {
    const uint64_t bits = combine(key, i) >> 32;
    const Slot slot = slots_[(s << slot_bits_) + (bits >> shift)];
    const uint32_t token = (bits & mask) < slot.threshold ? slot.below : slot.above;
    s = (last % classes) * vocabulary + token;
    last = token;
    out[i] = static_cast<int32_t>(token);
  }
}

double Chain::probability(int64_t from, int32_t next) const {
  double sum = 0;
  visit(from, [&](int32_t token, double p) { sum += token == next ? p : 0; });
  return sum;
}

double Chain::bigram(int32_t last, int32_t next) const {
  double sum = 0;
  for (int c = 0; c < shape_.classes; ++c) {
    const int64_t s = state(c, last);
    sum += stationary_[static_cast<std::size_t>(s)] * probability(s, next);
  }
  return sum / unigram(last);
}

// Of the token before the first one nothing is known, not even the class: the second token has the
// bigram's entropy. From the third on the state is known.
double Chain::information(int64_t tokens) const {
  if (tokens <= 0) return 0;
  if (tokens == 1) return unigram_entropy_;
  return unigram_entropy_ + bigram_entropy_ + static_cast<double>(tokens - 2) * rate_;
}

Bits64 Chain::hash() const {
  Bits64 hash =
      combine(static_cast<Bits64>(shape_.vocabulary), static_cast<Bits64>(shape_.classes));
  for (const Slot& slot : slots_) {
    hash = combine(hash, std::bit_cast<uint64_t>(slot));
  }
  return hash;
}

}  // namespace gallop::data
