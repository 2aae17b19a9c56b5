// SPDX-License-Identifier: MIT
#include "data/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "core/random.h"
#include "gallop/error.h"

namespace gallop::data {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 48;
constexpr int64_t kMostSuccessors = int64_t{1} << 24;  // in all rows together
enum Key : Bits64 { kLanguage, kText };

[[noreturn]] void invalid(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

void check(const char* what, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  invalid(fmt::format("synthetic {} {}, expected {} to {}", what, value, low, high));
}

ChainShape shape_of(const SyntheticOptions& o) {
  check("vocabulary", o.vocabulary, 2, 65536);
  check("order", o.order, 1, 2);
  if (o.order == 2) check("classes", o.classes, 2, o.vocabulary);
  check("branching", o.branching, 2, o.vocabulary);
  check("tokens", o.tokens, 1, kMostTokens);
  check("validation", o.validation, 0, kMostTokens);
  const int64_t classes = o.order == 2 ? o.classes : 1;
  if (classes * o.vocabulary * o.branching > kMostSuccessors) {
    invalid(
        fmt::format("synthetic vocabulary {} with {} classes and branching {}, expected a "
                    "product of at most {}",
                    o.vocabulary, classes, o.branching, kMostSuccessors));
  }
  return {static_cast<int>(o.vocabulary), static_cast<int>(classes), static_cast<int>(o.branching)};
}

double uniform(Bits64 bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// Tokens by Zipf's law, each row a few of them with chances that fall off, in some rows faster than
// in others. Token 0, as blanks in text, may follow anything: so there is one stationary state.
class Language {
 public:
  explicit Language(const SyntheticOptions& options)
      : key_(combine(options.seed, kLanguage)),
        branching_(static_cast<std::size_t>(options.branching)),
        taken_(static_cast<std::size_t>(options.vocabulary), -1) {
    double sum = 0;
    for (std::size_t t = 0; t < taken_.size(); ++t) {
      zipf_.push_back(sum += 1 / (static_cast<double>(t) + 3));
    }
    for (double& z : zipf_) z /= sum;
  }

  void operator()(int64_t state, Chain::Row& row) {
    const Bits64 key = combine(key_, static_cast<Bits64>(state));
    const double slope = 1 + uniform(combine(key, 0));
    for (std::size_t i = 0; i < branching_; ++i) {
      const int32_t token = free_token(uniform(combine(key, i + 1)), state);
      row.push_back({token, std::pow(static_cast<double>(i + 1), -slope)});
    }
    if (taken_[0] != state) row.back().token = 0;
  }

 private:
  // The first at or after u of Zipf's distribution that the row does not have.
  int32_t free_token(double u, int64_t state) {
    auto t = static_cast<std::size_t>(std::ranges::upper_bound(zipf_, u) - zipf_.begin());
    while (taken_[t] == state) t = (t + 1) % taken_.size();
    taken_[t] = state;
    return static_cast<int32_t>(t);
  }

  Bits64 key_;
  std::size_t branching_;
  std::vector<int64_t> taken_;  // by token: the last state that may be followed by it
  std::vector<double> zipf_;    // cumulative
};

struct Setting {
  std::string_view name;
  int64_t SyntheticOptions::*member;
};
constexpr std::array<Setting, 6> kSettings = {{{"vocabulary", &SyntheticOptions::vocabulary},
                                               {"order", &SyntheticOptions::order},
                                               {"classes", &SyntheticOptions::classes},
                                               {"branching", &SyntheticOptions::branching},
                                               {"tokens", &SyntheticOptions::tokens},
                                               {"validation", &SyntheticOptions::validation}}};

template <class T>
T parse_number(std::string_view key, std::string_view text) {
  T value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end) {
    invalid(fmt::format("synthetic {}={}, expected a whole number", key, text));
  }
  return value;
}

}  // namespace

SyntheticOptions parse_synthetic(const std::string& source, const CorpusOptions& options) {
  SyntheticOptions o;
  o.seed = options.seed;
  std::array<bool, kSettings.size()> given{};
  std::string_view rest(source);
  rest.remove_prefix(std::min(rest.size(), std::string_view("synthetic:").size()));
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const std::string_view text = equals == item.npos ? "" : item.substr(equals + 1);
    const auto found = std::ranges::find(kSettings, key, &Setting::name);
    if (found != kSettings.end()) {
      o.*found->member = parse_number<int64_t>(key, text);
      given[static_cast<std::size_t>(found - kSettings.begin())] = true;
    } else if (key == "seed") {
      o.seed = parse_number<uint64_t>(key, text);
    } else {
      invalid(
          fmt::format("'{}' of corpus '{}', expected KEY=VALUE where the key is vocabulary, "
                      "order, classes, branching, tokens, validation or seed",
                      item, source));
    }
  }
  const auto [vocabulary, order, classes, branching, tokens, validation] = given;
  if (options.vocabulary > 0 && vocabulary && o.vocabulary != options.vocabulary) {
    invalid(fmt::format("corpus '{}' with vocabulary {}, expected the same number twice or once",
                        source, options.vocabulary));
  }
  if (options.vocabulary > 0) o.vocabulary = options.vocabulary;
  if (classes && o.order == 1) {
    invalid(fmt::format("corpus '{}' with classes, expected them at order 2 only", source));
  }
  if (!classes) o.classes = std::min(o.classes, o.vocabulary);
  if (!branching) o.branching = std::min(o.branching, o.vocabulary);
  return o;
}

SyntheticCorpus::SyntheticCorpus(const SyntheticOptions& options)
    : options_(options), chain_(shape_of(options), Language(options)) {}

void SyntheticCorpus::read(Split split, int64_t first, std::span<int32_t> out) const {
  check_range(split, first, out.size());
  const Bits64 key = combine(combine(options_.seed, kText), static_cast<Bits64>(split));
  std::array<int32_t, kPiece> piece;
  while (!out.empty()) {
    const auto skip = static_cast<std::size_t>(first % kPiece);
    const std::size_t count = std::min(out.size(), piece.size() - skip);
    const auto needed = std::span(piece).first(skip + count);
    chain_.write(combine(key, static_cast<Bits64>(first / kPiece)), needed);
    std::ranges::copy(needed.subspan(skip), out.begin());
    out = out.subspan(count);
    first += static_cast<int64_t>(count);
  }
}

std::optional<double> SyntheticCorpus::entropy_rate() const {
  const int64_t pieces = options_.tokens / kPiece, rest = options_.tokens % kPiece;
  const double all =
      static_cast<double>(pieces) * chain_.information(kPiece) + chain_.information(rest);
  return all / static_cast<double>(options_.tokens);
}

double SyntheticCorpus::lowest_loss(int64_t context, int64_t min_length) const {
  constexpr double kEach = 1.0 / kPiece;  // how often a target is the first of a piece, the second
  const double seldom = kEach * (chain_.unigram_entropy() + chain_.bigram_entropy());
  const int64_t least = min_length > 0 ? min_length : context;
  const double first = 2 / static_cast<double>(least + context);  // one in the mean length
  return seldom + (1 - 2 * kEach) * (first * chain_.bigram_entropy() + (1 - first) * chain_.rate());
}

std::string SyntheticCorpus::describe() const {
  return fmt::format(
      "synthetic language of order {} with seed {}, {} to train with and {} to validate, "
      "vocabulary "
      "{}, {:.4f} nats a token, {:.4f} by frequency alone",
      options_.order, options_.seed, options_.tokens, options_.validation, options_.vocabulary,
      *entropy_rate(), unigram_entropy());
}

// The tables are hashed too: they depend on the machine's pow() in the last bit.
std::string SyntheticCorpus::fingerprint() const {
  const Bits64 sizes =
      combine(static_cast<Bits64>(options_.tokens), static_cast<Bits64>(options_.validation));
  return fmt::format("synthetic-{:016x}", combine(combine(sizes, options_.seed), chain_.hash()));
}

}  // namespace gallop::data
