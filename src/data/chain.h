// SPDX-License-Identifier: MIT
// A Markov chain over tokens whose entropies are computed, not estimated. The next token depends on
// the last one and on the class of the one before it: token % classes. One class: a chain of order
// 1; as many as tokens: any chain of order 2.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/random.h"

namespace gallop::data {

struct ChainShape {
  int vocabulary = 2;  // 2 to 65536
  int classes = 1;     // 1 to vocabulary
  int branching = 2;   // the most successors of a state

  int64_t states() const { return int64_t{classes} * vocabulary; }
};

class Chain {
 public:
  struct Successor {
    int32_t token;
    double weight;  // above 0; a row's are scaled to add up to 1
  };
  using Row = std::vector<Successor>;

  // `rows` fills the row of a state: class * vocabulary + last token. From every state some one
  // state has to be reachable, and the chain must not go round in a fixed time.
  Chain(const ChainShape& shape, const std::function<void(int64_t state, Row& row)>& rows);

  // One piece of text, of which the first token follows from nothing: all of its marginals are the
  // stationary ones. The same for the same key, however much of it is asked for.
  void write(Bits64 key, std::span<int32_t> out) const;

  // Probabilities: of `next` after a state, after one token, and anywhere.
  double probability(int64_t state, int32_t next) const;
  double bigram(int32_t last, int32_t next) const;
  double unigram(int32_t token) const { return unigram_[static_cast<std::size_t>(token)]; }
  int64_t state(int32_t before, int32_t last) const {
    return int64_t{before % shape_.classes} * shape_.vocabulary + last;
  }

  // Nats per token: given the whole past, given one token, given nothing.
  double rate() const { return rate_; }
  double bigram_entropy() const { return bigram_entropy_; }
  double unigram_entropy() const { return unigram_entropy_; }
  // Nats in the first `tokens` that write() writes.
  double information(int64_t tokens) const;

  Bits64 hash() const;

 private:
  // All slots of a row are equally likely; in one, numbers below the threshold mean one token,
  // the others another (Walker's alias method).
  struct Slot {
    uint32_t threshold;
    uint16_t below, above;
  };

  double put_row(int64_t state, const Row& row);
  std::vector<double> step(const std::vector<double>& from) const;
  std::vector<double> settle() const;
  double average_bigram_entropy() const;
  template <class Visit>
  void visit(int64_t state, Visit visit) const;

  ChainShape shape_;
  unsigned slot_bits_ = 0;  // of the 32 random bits that choose a successor
  std::vector<Slot> slots_;
  std::vector<double> stationary_, cumulative_, unigram_;
  double rate_ = 0, bigram_entropy_ = 0, unigram_entropy_ = 0;
};

}  // namespace gallop::data
