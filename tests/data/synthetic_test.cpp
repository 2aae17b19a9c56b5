// SPDX-License-Identifier: MIT
#include "data/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "data/chain.h"
#include "data/loader.h"
#include "gallop/error.h"

namespace gallop::data {
namespace {

using testing::HasSubstr;
using enum Split;

constexpr int64_t kPiece = SyntheticCorpus::kPiece;

std::vector<int32_t> read(const Corpus& corpus, Split split, int64_t first, int64_t count) {
  std::vector<int32_t> tokens(static_cast<std::size_t>(count));
  corpus.read(split, first, tokens);
  return tokens;
}

SyntheticCorpus make(const std::string& settings) {
  return SyntheticCorpus(parse_synthetic("synthetic:" + settings));
}

std::string refusal(const std::string& source, const CorpusOptions& options = {}) {
  try {
    open_corpus(source, options);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return e.what();
  }
  return "";
}

Chain chain_of(const ChainShape& shape, const std::vector<Chain::Row>& rows) {
  return Chain(shape, [&](int64_t s, Chain::Row& row) { row = rows[static_cast<std::size_t>(s)]; });
}

// What the text costs under the process that wrote it, nats a token, with its standard error:
// pieces are independent, so the error is that of a mean of their costs.
struct Cost {
  double mean, error;
};
Cost cost(const SyntheticCorpus& corpus, int64_t pieces) {
  const Chain& chain = corpus.chain();
  double sum = 0, squares = 0;
  for (int64_t p = 0; p < pieces; ++p) {
    const std::vector<int32_t> t = read(corpus, train, p * kPiece, kPiece);
    double nats = -std::log(chain.unigram(t[0])) - std::log(chain.bigram(t[0], t[1]));
    for (std::size_t i = 2; i < t.size(); ++i) {
      nats -= std::log(chain.probability(chain.state(t[i - 2], t[i - 1]), t[i]));
    }
    sum += nats / kPiece;
    squares += nats / kPiece * nats / kPiece;
  }
  const double n = static_cast<double>(pieces), mean = sum / n;
  return {mean, std::sqrt((squares / n - mean * mean) / (n - 1))};
}

TEST(Chain, OfTwoTokensHasTheEntropyOfTheFormula) {
  const double a = 0.25, b = 0.5;  // from 0 to 1, from 1 to 0
  const Chain chain = chain_of({2, 1, 2}, {{{0, 1 - a}, {1, a}}, {{0, b}, {1, 1 - b}}});
  const auto binary = [](double p) { return -p * std::log(p) - (1 - p) * std::log(1 - p); };
  const double zero = b / (a + b);
  EXPECT_NEAR(chain.unigram(0), zero, 1e-13);
  EXPECT_NEAR(chain.unigram_entropy(), binary(zero), 1e-13);
  const double rate = zero * binary(a) + (1 - zero) * binary(b);
  EXPECT_NEAR(chain.rate(), rate, 1e-13);
  EXPECT_NEAR(chain.bigram_entropy(), rate, 1e-13);
  EXPECT_EQ(chain.probability(0, 1), a);
  EXPECT_EQ(chain.bigram(1, 0), b);
  EXPECT_EQ(chain.information(0), 0);
  EXPECT_NEAR(chain.information(1), binary(zero), 1e-13);
  EXPECT_NEAR(chain.information(5), binary(zero) + 4 * rate, 1e-12);
}

// The next token is the parity of the last two, save once in ten: bigrams see a fair coin.
TEST(Chain, OfOrderTwoHidesFromBigrams) {
  std::vector<Chain::Row> rows;
  for (int s = 0; s < 4; ++s)
    rows.push_back({{(s / 2) ^ (s % 2), 0.9}, {1 - ((s / 2) ^ (s % 2)), 0.1}});
  const Chain chain = chain_of({2, 2, 2}, rows);
  EXPECT_NEAR(chain.rate(), -0.9 * std::log(0.9) - 0.1 * std::log(0.1), 1e-9);
  EXPECT_NEAR(chain.bigram_entropy(), std::log(2.0), 1e-9);
  EXPECT_NEAR(chain.unigram_entropy(), std::log(2.0), 1e-9);
}

TEST(Chain, RowsOfAnySizeAddUpToOne) {
  for (int branching : {1, 2, 3, 5, 8, 13}) {
    const Chain chain({17, 1, branching}, [&](int64_t s, Chain::Row& row) {
      for (int i = 0; i < branching; ++i) {
        row.push_back({(static_cast<int32_t>(s) * (i > 0) + i) % 17, std::pow(10.0, -i)});
      }
    });
    for (int64_t s = 0; s < 17; ++s) {
      double sum = 0;
      for (int32_t t = 0; t < 17; ++t) sum += chain.probability(s, t);
      EXPECT_EQ(sum, 1) << branching;
    }
    EXPECT_GE(chain.rate(), 0);
  }
}

TEST(Chain, RefusesWhatNeverSettlesAndRowsOfTheWrongSize) {
  try {
    chain_of({3, 1, 1}, {{{1, 1}}, {{0, 1}}, {{0, 1}}});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("a chain of 3 states that has not settled"));
  }
  try {
    chain_of({2, 1, 1}, {{{0, 1}}, {{0, 1}, {1, 1}}});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "state 1 of a chain has 2 successors, expected 1 to 1");
  }
}

TEST(Synthetic, TextCostsWhatTheEntropySays) {
  for (const char* settings : {"tokens=1638400", "tokens=1638400,order=1,vocabulary=5,seed=7",
                               "tokens=1638400,vocabulary=33,classes=33,branching=3"}) {
    const SyntheticCorpus corpus = make(settings);
    const Cost text = cost(corpus, 400);
    EXPECT_LT(text.error, 0.004) << settings;
    EXPECT_LT(std::abs(text.mean - *corpus.entropy_rate()), 5 * text.error) << settings;
  }
}

TEST(Synthetic, TokensOccurAsOftenAsTheyShould) {
  const SyntheticCorpus corpus = make("");
  constexpr int64_t kPieces = 200;
  // By piece, as above: within one, tokens depend on each other.
  for (int32_t token : {0, 1, 5, 40}) {
    double sum = 0, squares = 0;
    for (int64_t p = 0; p < kPieces; ++p) {
      const std::vector<int32_t> t = read(corpus, validation, p * kPiece, kPiece);
      const double share = static_cast<double>(std::ranges::count(t, token)) / kPiece;
      sum += share;
      squares += share * share;
    }
    const double mean = sum / kPieces;
    const double error = std::sqrt((squares / kPieces - mean * mean) / (kPieces - 1));
    EXPECT_LT(std::abs(mean - corpus.chain().unigram(token)), 5 * error) << token;
  }
}

TEST(Synthetic, RewardsLearningMoreThanBigrams) {
  const SyntheticCorpus corpus = make("");
  const Chain& chain = corpus.chain();
  EXPECT_LT(chain.rate() + 1, chain.bigram_entropy());
  EXPECT_LT(chain.bigram_entropy() + 1, corpus.unigram_entropy());
  EXPECT_LT(corpus.unigram_entropy(), std::log(256.0) - 0.5);
  // Pieces begin with tokens that follow from nothing.
  const double rate = *corpus.entropy_rate();
  EXPECT_NEAR(rate - chain.rate(),
              (corpus.unigram_entropy() + chain.bigram_entropy() - 2 * chain.rate()) / kPiece,
              1e-6);
  EXPECT_NEAR(*make("tokens=1").entropy_rate(), corpus.unigram_entropy(), 1e-12);
  EXPECT_NEAR(*make("tokens=8194").entropy_rate(),
              (2 * chain.information(kPiece) + chain.information(2)) / 8194, 1e-12);
}

TEST(Synthetic, LowestLossInWindowsApproachesTheEntropy) {
  const SyntheticCorpus corpus = make("tokens=40960000");
  const Chain& chain = corpus.chain();
  EXPECT_NEAR(corpus.lowest_loss(int64_t{1} << 40), *corpus.entropy_rate(), 1e-9);
  EXPECT_NEAR(corpus.lowest_loss(1), chain.bigram_entropy(), 1e-3);
  EXPECT_EQ(corpus.lowest_loss(96, 32), corpus.lowest_loss(64));  // as long in the mean
  EXPECT_NEAR(corpus.lowest_loss(64) - corpus.lowest_loss(128),
              (chain.bigram_entropy() - chain.rate()) / 128, 1e-5);
}

// The mean over windows of what the best model of windows pays; windows are far apart, so nearly
// independent.
TEST(Synthetic, WindowsCostWhatTheLowestLossSays) {
  const SyntheticCorpus corpus = make("");
  const Chain& chain = corpus.chain();
  constexpr std::size_t kContext = 8, kRows = 8000;
  const Batch batch = Loader(corpus, {.rows = kRows, .context = kContext}).next();
  double sum = 0, squares = 0;
  for (std::size_t row = 0; row < kRows; ++row) {
    double nats = 0;
    for (std::size_t i = row * kContext; i < (row + 1) * kContext; ++i) {
      const int32_t last = batch.inputs[i], next = batch.targets[i];
      const double p = i % kContext == 0
                           ? chain.bigram(last, next)
                           : chain.probability(chain.state(batch.inputs[i - 1], last), next);
      // The few windows across two pieces may hold what no chain would write.
      nats -= std::log(p > 0 ? p : chain.unigram(next)) / kContext;
    }
    sum += nats;
    squares += nats * nats;
  }
  const double mean = sum / kRows;
  const double error = std::sqrt((squares / kRows - mean * mean) / (kRows - 1));
  EXPECT_LT(error, 0.02);
  EXPECT_LT(std::abs(mean - corpus.lowest_loss(kContext)), 5 * error);
}

TEST(Synthetic, ReadsAreTheSameHoweverTheyAreCut) {
  const SyntheticCorpus corpus = make("tokens=20001");
  const std::vector<int32_t> whole = read(corpus, train, 0, 20001);
  for (int64_t size : {1, 63, 4095, 4096, 4097, 10000}) {
    std::vector<int32_t> pieces;
    for (int64_t first = 0; first < 20001; first += size) {
      const std::vector<int32_t> part = read(corpus, train, first, std::min(size, 20001 - first));
      pieces.insert(pieces.end(), part.begin(), part.end());
    }
    ASSERT_EQ(pieces, whole) << size;
  }
  EXPECT_TRUE(read(corpus, train, 20001, 0).empty());
  EXPECT_THROW(read(corpus, train, 20001, 1), Error);
  EXPECT_THROW(read(corpus, train, -1, 1), Error);
}

TEST(Synthetic, SameSeedSameTextOtherSeedOtherText) {
  const SyntheticCorpus a = make(""), again = make(""), other = make("seed=2");
  EXPECT_EQ(read(a, train, 99'000'000, 5000), read(again, train, 99'000'000, 5000));
  EXPECT_NE(read(a, train, 0, 100), read(other, train, 0, 100));
  EXPECT_NE(read(a, train, 0, 100), read(a, validation, 0, 100));
  EXPECT_NE(read(a, train, 0, 100), read(a, train, kPiece, 100));
  EXPECT_EQ(a.fingerprint(), again.fingerprint());
  EXPECT_NE(a.fingerprint(), other.fingerprint());
  EXPECT_NE(a.fingerprint(), make("tokens=99").fingerprint());
  EXPECT_NE(a.fingerprint(), make("branching=15").fingerprint());
  EXPECT_EQ(open_corpus("synthetic", {.seed = 2})->fingerprint(), other.fingerprint());
  EXPECT_EQ(open_corpus("synthetic:seed=1", {.seed = 2})->fingerprint(), a.fingerprint());
}

TEST(Synthetic, OpensBySourceWithItsOwnSizes) {
  const auto corpus = open_corpus("synthetic");
  EXPECT_EQ(corpus->vocabulary(), 256);
  EXPECT_EQ(corpus->tokens(train), 100'000'000);
  EXPECT_EQ(corpus->tokens(validation), 1'000'000);
  EXPECT_FALSE(corpus->bytes());
  EXPECT_TRUE(corpus->entropy_rate());
  EXPECT_THAT(corpus->describe(), HasSubstr("order 2 with seed 1, 100000000 to train with"));
  EXPECT_EQ(open_corpus("synthetic:", {.vocabulary = 50})->vocabulary(), 50);
  EXPECT_EQ(open_corpus("synthetic:vocabulary=3,validation=0")->vocabulary(), 3);
  EXPECT_EQ(open_corpus("synthetic:vocabulary=9", {.vocabulary = 9})->vocabulary(), 9);
  for (int32_t t : read(*open_corpus("synthetic:vocabulary=3"), train, 0, 5000)) {
    ASSERT_TRUE(t >= 0 && t < 3);
  }
}

TEST(Synthetic, WrongSettingsAreNamed) {
  EXPECT_EQ(refusal("synthetic:vocabulary=1"), "synthetic vocabulary 1, expected 2 to 65536");
  EXPECT_EQ(refusal("synthetic:vocabulary=65537"),
            "synthetic vocabulary 65537, expected 2 to 65536");
  EXPECT_EQ(refusal("synthetic:order=3"), "synthetic order 3, expected 1 to 2");
  EXPECT_EQ(refusal("synthetic:classes=257"), "synthetic classes 257, expected 2 to 256");
  EXPECT_EQ(refusal("synthetic:branching=1"), "synthetic branching 1, expected 2 to 256");
  EXPECT_THAT(refusal("synthetic:tokens=0"), HasSubstr("synthetic tokens 0, expected 1 to"));
  EXPECT_THAT(refusal("synthetic:validation=-1"), HasSubstr("validation -1, expected 0 to"));
  EXPECT_EQ(refusal("synthetic:tokens=many"), "synthetic tokens=many, expected a whole number");
  EXPECT_EQ(refusal("synthetic:tokens=1e6"), "synthetic tokens=1e6, expected a whole number");
  EXPECT_EQ(refusal("synthetic:seed=-1"), "synthetic seed=-1, expected a whole number");
  EXPECT_EQ(refusal("synthetic:seed"), "synthetic seed=, expected a whole number");
  EXPECT_EQ(refusal("synthetic:size=3"),
            "'size=3' of corpus 'synthetic:size=3', expected KEY=VALUE where the key is "
            "vocabulary, order, classes, branching, tokens, validation or seed");
  EXPECT_EQ(refusal("synthetic:order=1,classes=4"),
            "corpus 'synthetic:order=1,classes=4' with classes, expected them at order 2 only");
  EXPECT_EQ(refusal("synthetic:vocabulary=9", {.vocabulary = 8}),
            "corpus 'synthetic:vocabulary=9' with vocabulary 8, expected the same number twice or "
            "once");
  EXPECT_THAT(refusal("synthetic:vocabulary=65536,classes=65536"),
              HasSubstr("expected a product of at most 16777216"));
}

}  // namespace
}  // namespace gallop::data
