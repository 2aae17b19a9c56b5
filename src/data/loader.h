// SPDX-License-Identifier: MIT
// Windows of a corpus as batches to train with, made by a thread ahead of their use.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "data/corpus.h"

namespace gallop::data {

struct Batch {
  int64_t index = 0;  // which batch of the run
  // (rows, context); targets are inputs shifted by one, or below 0 where they do not count.
  std::vector<int32_t> inputs, targets;

  // Positions 0..rows*context-1 of inputs by token, for a gradient of the embedding that is added
  // up in one order: those of the k-th distinct token are order[starts[k]] to order[starts[k + 1] -
  // 1], ascending.
  std::vector<int32_t> order;
  std::vector<int32_t> starts;    // distinct.size() + 1
  std::vector<int32_t> distinct;  // ascending
};

// Fills order, starts and distinct.
void index_by_token(Batch& batch, int vocabulary);

struct LoaderOptions {
  int64_t rows, context;
  uint64_t seed = 1;
  int64_t first_batch = 0;  // where a resumed run goes on
  int ahead = 2;            // batches made before they are asked for; 0: no thread
  // Sequences have so many tokens up to the context, any number equally often; the rest of a row is
  // padding: token 0, target -1. 0: all have the context's.
  int64_t min_length = 0;
};

// Windows begin anywhere in the train split and are as long as they are by a function of seed,
// batch and row alone.
class Loader {
 public:
  Loader(const Corpus& corpus, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  const Batch& next();    // until the next call; throws what went wrong in the thread
  double wait_s() const;  // that next() waited, in all
  double work_s() const;  // that making batches took, in all

 private:
  void fill(Batch& batch, int64_t index);
  void work();

  const Corpus& corpus_;
  LoaderOptions options_;
  std::vector<int32_t> window_;  // context + 1
  std::vector<Batch> ring_;      // one in use, the others made or being made

  mutable std::mutex mutex_;
  std::condition_variable made_one_, freed_one_;
  int64_t made_ = 0, asked_ = 0;  // batches, not counting from first_batch
  double wait_s_ = 0, work_s_ = 0;
  std::exception_ptr failure_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Windows of the validation split, the same at every evaluation: all `context` apart, or every so
// many of them where `count` batches need fewer. As many batches as there are windows for, at most
// `count`; where not even one could be filled, windows overlap. min_length as in LoaderOptions.
std::vector<Batch> validation_batches(const Corpus& corpus, int64_t rows, int64_t context,
                                      int64_t count, int64_t min_length = 0);

}  // namespace gallop::data
