// SPDX-License-Identifier: MIT
#include "data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "gallop/error.h"

namespace gallop::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using enum Split;

// Tokens that count up, so that a token says where it lies.
class Counting final : public Corpus {
 public:
  Counting(int64_t tokens_of_train, int64_t tokens_of_validation)
      : train_(tokens_of_train), validation_(tokens_of_validation) {}
  int vocabulary() const override { return static_cast<int>(std::max(train_, validation_)); }
  int64_t tokens(Split split) const override { return split == train ? train_ : validation_; }
  void read(Split split, int64_t first, std::span<int32_t> out) const override {
    check_range(split, first, out.size());
    if (reads_left_ > 0 && --reads_left_ == 0) throw Error(ErrorCode::io, "the disk is gone");
    if (slow_) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::iota(out.begin(), out.end(), static_cast<int32_t>(first));
  }
  std::string describe() const override { return "counting"; }
  std::string fingerprint() const override { return "counting"; }

  mutable std::atomic<int> reads_left_ = 0;  // before it fails; 0: never
  bool slow_ = false;

 private:
  int64_t train_, validation_;
};

template <class Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void expect_shifted(const Batch& batch, std::size_t rows, std::size_t context) {
  ASSERT_EQ(batch.inputs.size(), rows * context);
  ASSERT_EQ(batch.targets.size(), rows * context);
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    ASSERT_EQ(batch.targets[i], batch.inputs[i] + 1);
    if (i % context != 0) {
      ASSERT_EQ(batch.inputs[i], batch.inputs[i - 1] + 1);
    }
  }
}

TEST(IndexByToken, GroupsPositionsByToken) {
  Batch batch;
  batch.inputs = {7, 2, 7, 0, 2, 7};
  index_by_token(batch, 9);
  EXPECT_THAT(batch.distinct, ElementsAre(0, 2, 7));
  EXPECT_THAT(batch.starts, ElementsAre(0, 1, 3, 6));
  EXPECT_THAT(batch.order, ElementsAre(3, 1, 4, 0, 2, 5));
  batch.inputs = {8, 8};
  index_by_token(batch, 9);
  EXPECT_THAT(batch.distinct, ElementsAre(8));
  EXPECT_THAT(batch.starts, ElementsAre(0, 2));
  EXPECT_THAT(batch.order, ElementsAre(0, 1));
  batch.inputs.clear();
  index_by_token(batch, 9);
  EXPECT_TRUE(batch.distinct.empty() && batch.order.empty());
  EXPECT_THAT(batch.starts, ElementsAre(0));
}

TEST(IndexByToken, NamesTokensOutsideTheVocabulary) {
  Batch batch;
  for (int32_t bad : {-1, 9}) {
    batch.inputs = {3, bad};
    EXPECT_EQ(refusal([&] { index_by_token(batch, 9); }),
              "token " + std::to_string(bad) + " at position 1 of a batch, expected 0 to 8");
  }
}

TEST(IndexByToken, IsThereInEveryBatchOfTheLoader) {
  const auto corpus = open_corpus("synthetic:vocabulary=20");
  Loader loader(*corpus, {.rows = 3, .context = 33});
  for (int i = 0; i < 3; ++i) {
    const Batch& batch = loader.next();
    ASSERT_EQ(batch.starts.size(), batch.distinct.size() + 1);
    std::vector<int32_t> positions;
    for (std::size_t k = 0; k < batch.distinct.size(); ++k) {
      for (int32_t at = batch.starts[k]; at < batch.starts[k + 1]; ++at) {
        positions.push_back(batch.order[static_cast<std::size_t>(at)]);
        EXPECT_EQ(batch.inputs[static_cast<std::size_t>(positions.back())], batch.distinct[k]);
        if (at > batch.starts[k]) {
          EXPECT_LT(*(positions.end() - 2), positions.back());
        }
      }
    }
    std::ranges::sort(positions);
    ASSERT_EQ(positions.size(), 99u);
    for (int32_t p = 0; p < 99; ++p) EXPECT_EQ(positions[static_cast<std::size_t>(p)], p);
  }
}

TEST(Loader, TargetsAreInputsShiftedByOne) {
  const Counting corpus(1000, 0);
  for (int ahead : {0, 1, 2, 5}) {
    Loader loader(corpus, {.rows = 5, .context = 17, .ahead = ahead});
    for (int64_t i = 0; i < 20; ++i) {
      const Batch& batch = loader.next();
      EXPECT_EQ(batch.index, i);
      expect_shifted(batch, 5, 17);
    }
  }
}

TEST(Loader, BatchesDependOnSeedAndIndexAlone) {
  const Counting corpus(100000, 0);
  std::vector<std::vector<int32_t>> inputs;
  Loader plain(corpus, {.rows = 4, .context = 8, .seed = 3, .ahead = 0});
  for (int i = 0; i < 12; ++i) inputs.push_back(plain.next().inputs);
  EXPECT_EQ(std::set(inputs.begin(), inputs.end()).size(), 12u);
  for (int ahead : {0, 1, 3}) {
    for (int64_t first : {0, 1, 7}) {
      Loader resumed(corpus,
                     {.rows = 4, .context = 8, .seed = 3, .first_batch = first, .ahead = ahead});
      for (int64_t i = first; i < 12; ++i) {
        const Batch& batch = resumed.next();
        EXPECT_EQ(batch.index, i);
        EXPECT_EQ(batch.inputs, inputs[static_cast<std::size_t>(i)]);
      }
    }
  }
  EXPECT_NE(Loader(corpus, {.rows = 4, .context = 8, .seed = 4}).next().inputs, inputs[0]);
}

// Tokens and targets up to where padding begins, in each row.
std::vector<std::size_t> lengths_of(const Batch& batch, std::size_t rows, std::size_t context) {
  std::vector<std::size_t> lengths;
  for (std::size_t row = 0; row < rows; ++row) {
    std::size_t n = 0;
    while (n < context && batch.targets[row * context + n] >= 0) ++n;
    for (std::size_t i = row * context; i < (row + 1) * context; ++i) {
      const bool padding = i >= row * context + n;
      EXPECT_EQ(batch.targets[i], padding ? -1 : batch.inputs[i] + 1);
      if (padding) {
        EXPECT_EQ(batch.inputs[i], 0);
      }
    }
    lengths.push_back(n);
  }
  return lengths;
}

// 3,000 lengths of 5 kinds: each is within 6 standard deviations, 22, of 600.
TEST(Loader, LengthsAreEquallyOftenWhatTheyMayBe) {
  const Counting corpus(1000, 0);
  Loader padded(corpus, {.rows = 3000, .context = 8, .min_length = 4});
  const Batch& batch = padded.next();
  ASSERT_EQ(batch.inputs.size(), 24000u);
  EXPECT_EQ(batch.order.size(), 24000u);
  std::vector<int> seen(9);
  for (std::size_t n : lengths_of(batch, 3000, 8)) ++seen.at(n);
  EXPECT_THAT(std::span(seen).first(4), testing::Each(0));
  for (std::size_t n = 4; n <= 8; ++n) EXPECT_NEAR(seen[n], 600, 6 * 22);
}

TEST(Loader, PaddedBatchesAreTheOthersCutShort) {
  const Counting corpus(100000, 0);
  Loader whole(corpus, {.rows = 4, .context = 8, .seed = 3, .ahead = 0});
  std::vector<Batch> padded;
  Loader first(corpus, {.rows = 4, .context = 8, .seed = 3, .ahead = 0, .min_length = 2});
  for (int i = 0; i < 6; ++i) {
    padded.push_back(first.next());
    const Batch& all = whole.next();
    const auto lengths = lengths_of(padded.back(), 4, 8);
    for (std::size_t row = 0; row < 4; ++row) {
      for (std::size_t k = row * 8; k < row * 8 + lengths[row]; ++k) {
        EXPECT_EQ(padded.back().inputs[k], all.inputs[k]);
      }
    }
  }
  EXPECT_NE(lengths_of(padded[0], 4, 8), lengths_of(padded[1], 4, 8));
  for (int ahead : {0, 2}) {
    Loader resumed(
        corpus,
        {.rows = 4, .context = 8, .seed = 3, .first_batch = 2, .ahead = ahead, .min_length = 2});
    for (std::size_t i = 2; i < 6; ++i) {
      const Batch& batch = resumed.next();
      EXPECT_EQ(batch.inputs, padded[i].inputs);
      EXPECT_EQ(batch.targets, padded[i].targets);
    }
  }
  Loader full(corpus, {.rows = 4, .context = 8, .seed = 3, .min_length = 8});
  expect_shifted(full.next(), 4, 8);
}

TEST(Loader, ABatchStaysUntilTheNextIsAskedFor) {
  const Counting corpus(100000, 0);
  Loader loader(corpus, {.rows = 4, .context = 8, .ahead = 1});
  for (int i = 0; i < 5; ++i) {
    const Batch& batch = loader.next();
    const std::vector<int32_t> copy = batch.inputs;
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    EXPECT_EQ(batch.inputs, copy);
  }
}

// 20,000 windows over 11 places: each is within 6 standard deviations, 41, of 1,818.
TEST(Loader, WindowsBeginEverywhereEquallyOften) {
  const Counting corpus(15, 0);
  Loader loader(corpus, {.rows = 20000, .context = 4});
  const Batch& batch = loader.next();
  std::vector<int> begins(11);
  for (std::size_t row = 0; row < 20000; ++row) {
    ++begins.at(static_cast<std::size_t>(batch.inputs[row * 4]));
  }
  for (int count : begins) EXPECT_NEAR(count, 20000 / 11.0, 6 * 41);
}

TEST(Loader, ACorpusOfOneWindowIsEnough) {
  const Counting corpus(9, 9);
  Loader loader(corpus, {.rows = 3, .context = 8});
  expect_shifted(loader.next(), 3, 8);
  expect_shifted(validation_batches(corpus, 3, 8, 2).at(0), 3, 8);
}

TEST(Loader, RefusesWhatDoesNotFit) {
  const Counting corpus(8, 5);
  const auto loader = [&](LoaderOptions options) {
    return refusal([&] { Loader l(corpus, options); });
  };
  EXPECT_EQ(loader({.rows = 1, .context = 8}),
            "the train split has 8 tokens, expected at least 9, one more than the context");
  EXPECT_EQ(loader({.rows = 0, .context = 4}), "0 rows in a batch, expected at least 1");
  EXPECT_EQ(loader({.rows = 1, .context = 0}), "context 0, expected at least 1");
  EXPECT_EQ(loader({.rows = int64_t{1} << 31, .context = 4}),
            "a batch of 2147483648 rows with context 4, expected at most 2147483647 tokens");
  EXPECT_EQ(loader({.rows = 1, .context = 4, .first_batch = -1}),
            "first batch -1, expected at least 0");
  EXPECT_EQ(loader({.rows = 1, .context = 4, .ahead = -1}), "-1 batches ahead, expected 0 to 64");
  EXPECT_EQ(loader({.rows = 1, .context = 4, .ahead = 65}), "65 batches ahead, expected 0 to 64");
  for (int64_t bad : {-1, 5}) {
    const std::string expected = "a smallest length of " + std::to_string(bad) +
                                 " tokens, expected 1 to the context of 4, or 0: no padding";
    EXPECT_EQ(loader({.rows = 1, .context = 4, .min_length = bad}), expected);
    EXPECT_EQ(refusal([&] { validation_batches(corpus, 1, 4, 1, bad); }), expected);
  }
  EXPECT_EQ(refusal([&] { validation_batches(corpus, 1, 5, 1); }),
            "the validation split has 5 tokens, expected at least 6, one more than the context");
  EXPECT_EQ(refusal([&] { validation_batches(corpus, 1, 4, 0); }),
            "0 batches to validate with, expected at least 1");
}

TEST(Loader, WhatFailsInTheThreadIsThrownAfterTheBatchesBeforeIt) {
  for (int ahead : {1, 3}) {
    Counting corpus(1000, 0);
    corpus.reads_left_ = 2 * 4 + 2;  // in the third batch
    Loader loader(corpus, {.rows = 4, .context = 8, .ahead = ahead});
    EXPECT_EQ(loader.next().index, 0);
    EXPECT_EQ(loader.next().index, 1);
    for (int again = 0; again < 3; ++again) {
      EXPECT_EQ(refusal([&] { loader.next(); }), "the disk is gone");
    }
  }
}

TEST(Loader, WithoutAThreadAFailedBatchCanBeAskedForAgain) {
  Counting corpus(1000, 0);
  corpus.reads_left_ = 2;
  Loader loader(corpus, {.rows = 4, .context = 8, .ahead = 0});
  EXPECT_EQ(refusal([&] { loader.next(); }), "the disk is gone");
  const Batch& batch = loader.next();
  EXPECT_EQ(batch.index, 0);
  expect_shifted(batch, 4, 8);
}

TEST(Loader, MayEndAtAnyTime) {
  Counting corpus(1000, 0);
  corpus.slow_ = true;
  for (int asked = 0; asked < 4; ++asked) {
    // A whole batch would take a minute.
    Loader loader(corpus, {.rows = asked > 0 ? 2 : 30000, .context = 8, .ahead = 3});
    for (int i = 0; i < asked; ++i) loader.next();
  }
  for (int i = 0; i < 50; ++i) Loader(corpus, {.rows = 1, .context = 8, .ahead = 1});
}

TEST(Loader, CountsTheTimeItTakes) {
  Counting corpus(1000, 0);
  corpus.slow_ = true;
  for (int ahead : {0, 2}) {
    Loader loader(corpus, {.rows = 5, .context = 8, .ahead = ahead});
    loader.next();
    EXPECT_GE(loader.work_s(), 0.01);
    EXPECT_GT(loader.wait_s(), 0);
  }
}

TEST(ValidationBatches, AreAllWindowsInTurn) {
  const Counting corpus(10, 6 * 16 + 1);
  const std::vector<Batch> batches = validation_batches(corpus, 3, 16, 2);
  ASSERT_EQ(batches.size(), 2u);
  for (std::size_t b = 0; b < 2; ++b) {
    EXPECT_EQ(batches[b].index, static_cast<int64_t>(b));
    EXPECT_EQ(batches[b].order.size(), 48u);
    expect_shifted(batches[b], 3, 16);
    for (std::size_t row = 0; row < 3; ++row) {
      EXPECT_EQ(batches[b].inputs[row * 16], static_cast<int32_t>((b * 3 + row) * 16));
    }
  }
}

TEST(ValidationBatches, ArePaddedAlikeEveryTime) {
  const Counting corpus(10, 40 * 16 + 1);
  const std::vector<Batch> once = validation_batches(corpus, 20, 16, 2, 1);
  const std::vector<Batch> again = validation_batches(corpus, 20, 16, 2, 1);
  ASSERT_EQ(once.size(), 2u);
  std::set<std::size_t> seen;
  for (std::size_t b = 0; b < 2; ++b) {
    EXPECT_EQ(once[b].inputs, again[b].inputs);
    EXPECT_EQ(once[b].targets, again[b].targets);
    for (std::size_t n : lengths_of(once[b], 20, 16)) seen.insert(n);
  }
  EXPECT_GT(seen.size(), 8u);
  EXPECT_GE(*seen.begin(), 1u);
}

TEST(ValidationBatches, AreSpreadOutWhereFewerAreWanted) {
  const Counting corpus(10, 1000);  // 99 windows
  const std::vector<Batch> batches = validation_batches(corpus, 2, 10, 2);
  std::vector<int32_t> begins;
  for (const Batch& b : batches) begins.insert(begins.end(), {b.inputs[0], b.inputs[10]});
  EXPECT_THAT(begins, ElementsAre(0, 240, 490, 740));
}

TEST(ValidationBatches, AreNoMoreThanThereAreWindowsFor) {
  const Counting corpus(10, 1000);
  EXPECT_EQ(validation_batches(corpus, 8, 10, 1000).size(), 12u);
  // Fewer than one batch: windows overlap, from the first to the last.
  const std::vector<Batch> one = validation_batches(corpus, 4, 500, 1000);
  ASSERT_EQ(one.size(), 1u);
  expect_shifted(one[0], 4, 500);
  EXPECT_EQ(one[0].inputs[0], 0);
  EXPECT_EQ(one[0].targets.back(), 999);
}

}  // namespace
}  // namespace gallop::data
