// SPDX-License-Identifier: MIT
// A made-up language: what a model of it can reach at best is known exactly, and it takes no space.
#pragma once

#include <cstdint>
#include <string>

#include "data/chain.h"
#include "data/corpus.h"

namespace gallop::data {

struct SyntheticOptions {
  int64_t vocabulary = 256;
  int64_t order = 2;       // 1: the next token depends on the last; 2: on the class before it too
  int64_t classes = 8;     // of tokens, at order 2
  int64_t branching = 16;  // how many tokens may follow
  int64_t tokens = 100'000'000;
  int64_t validation = 1'000'000;  // tokens
  uint64_t seed = 1;
};

// "synthetic", or "synthetic:" and members of SyntheticOptions as KEY=VALUE,...
SyntheticOptions parse_synthetic(const std::string& source, const CorpusOptions& options = {});

// Text is written in pieces of kPiece tokens, none of which depends on another; so any part of it
// can be had without the rest.
class SyntheticCorpus final : public Corpus {
 public:
  static constexpr int64_t kPiece = 4096;
  explicit SyntheticCorpus(const SyntheticOptions& options);

  int vocabulary() const override { return static_cast<int>(options_.vocabulary); }
  int64_t tokens(Split split) const override {
    return split == Split::train ? options_.tokens : options_.validation;
  }
  void read(Split split, int64_t first, std::span<int32_t> out) const override;
  std::string describe() const override;
  std::string fingerprint() const override;

  // Of the training text, with the first tokens of its pieces, which cost more than those that
  // follow from others: chain().rate() is what one endless piece would have.
  std::optional<double> entropy_rate() const override;
  // The lowest loss in windows that begin anywhere: `context` targets, of which the first follows
  // from one token only. To one that is not told where pieces begin they cost a little more.
  // min_length as of the loader.
  double lowest_loss(int64_t context, int64_t min_length = 0) const;
  double unigram_entropy() const { return chain_.unigram_entropy(); }
  const Chain& chain() const { return chain_; }

 private:
  SyntheticOptions options_;
  Chain chain_;
};

}  // namespace gallop::data
