// SPDX-License-Identifier: MIT
// What is trained on: tokens in two splits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace gallop::data {

enum class Split { train, validation };

const char* name(Split split);

// Read-only, and safe to use from several threads.
class Corpus {
 public:
  virtual ~Corpus() = default;
  virtual int vocabulary() const = 0;       // tokens are in [0, vocabulary)
  virtual int64_t tokens(Split) const = 0;  // how many there are
  virtual void read(Split, int64_t first, std::span<int32_t> out) const = 0;
  virtual std::string describe() const = 0;                          // one line for people
  virtual std::optional<double> entropy_rate() const { return {}; }  // nats per token, if exact
  virtual std::string fingerprint() const = 0;  // differs for other data, wherever they lie
  virtual bool bytes() const { return false; }  // tokens are bytes of text

 protected:
  void check_range(Split split, int64_t first, std::size_t count) const;
};

struct CorpusOptions {
  double validation_share = 0.1;  // of one file: its end
  int vocabulary = 0;             // 0: the source's own
  uint64_t seed = 1;              // of the synthetic language
};

// source: a file of tokens (*.bin: nanoGPT's or llm.c's), any other file as bytes of text, two of a
// kind as TRAIN,VALIDATION, or synthetic[:KEY=VALUE,...] (see synthetic.h).
std::unique_ptr<Corpus> open_corpus(const std::string& source, const CorpusOptions& options = {});

}  // namespace gallop::data
