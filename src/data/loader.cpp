// SPDX-License-Identifier: MIT
#include "data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <span>

#include "core/random.h"
#include "gallop/error.h"

namespace gallop::data {
namespace {

constexpr int kMostAhead = 64;
// Apart from what else is drawn with the same seed: synthetic.cpp.
constexpr Bits64 kWindows = 2, kLengths = 3;
constexpr Bits64 kValidationSeed = 1;
constexpr int32_t kPadding = 0, kNotCounted = -1;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

[[noreturn]] void invalid(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

void check_shape(const Corpus& corpus, Split split, int64_t rows, int64_t context,
                 int64_t min_length) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (rows < 1) invalid(fmt::format("{} rows in a batch, expected at least 1", rows));
  if (context < 1) invalid(fmt::format("context {}, expected at least 1", context));
  if (context > kMost / rows) {
    invalid(fmt::format("a batch of {} rows with context {}, expected at most {} tokens", rows,
                        context, kMost));
  }
  if (min_length < 0 || min_length > context) {
    invalid(fmt::format(
        "a smallest length of {} tokens, expected 1 to the context of {}, or 0: no padding",
        min_length, context));
  }
  const int64_t tokens = corpus.tokens(split);
  if (tokens <= context) {
    invalid(
        fmt::format("the {} split has {} tokens, expected at least {}, one more than the "
                    "context",
                    name(split), tokens, context + 1));
  }
}

// Of a batch's rows.
class Lengths {
 public:
  Lengths(int64_t least, int64_t context, uint64_t seed, int64_t batch)
      : least_(least > 0 ? least : context),
        context_(context),
        key_(combine(combine(seed, kLengths), static_cast<Bits64>(batch))) {}
  int64_t of(int64_t row) const {
    const int64_t choices = context_ - least_ + 1;
    const Bits64 drawn = combine(key_, static_cast<Bits64>(row));
    return least_ + static_cast<int64_t>(drawn % static_cast<Bits64>(choices));
  }

 private:
  int64_t least_, context_;
  Bits64 key_;
};

// `window` is room for context + 1 tokens.
void read_row(const Corpus& corpus, Split split, int64_t first, int64_t length,
              std::span<int32_t> window, Batch& batch) {
  const auto read = window.first(static_cast<std::size_t>(length) + 1);
  const std::size_t padding = window.size() - read.size();
  corpus.read(split, first, read);
  batch.inputs.insert(batch.inputs.end(), read.begin(), read.end() - 1);
  batch.inputs.insert(batch.inputs.end(), padding, kPadding);
  batch.targets.insert(batch.targets.end(), read.begin() + 1, read.end());
  batch.targets.insert(batch.targets.end(), padding, kNotCounted);
}

}  // namespace

void index_by_token(Batch& batch, int vocabulary) {
  const std::vector<int32_t>& tokens = batch.inputs;
  std::vector<int32_t> place(static_cast<std::size_t>(std::max(vocabulary, 0)));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocabulary) {
      invalid(fmt::format("token {} at position {} of a batch, expected 0 to {}", tokens[i], i,
                          vocabulary - 1));
    }
    ++place[static_cast<std::size_t>(tokens[i])];
  }
  batch.distinct.clear();
  batch.starts.assign(1, 0);
  for (int32_t t = 0; t < vocabulary; ++t) {
    int32_t& count = place[static_cast<std::size_t>(t)];
    if (count == 0) continue;
    const int32_t begin = batch.starts.back();
    batch.distinct.push_back(t);
    batch.starts.push_back(begin + count);
    count = begin;
  }
  batch.order.resize(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    int32_t& next = place[static_cast<std::size_t>(tokens[i])];
    batch.order[static_cast<std::size_t>(next++)] = static_cast<int32_t>(i);
  }
}

Loader::Loader(const Corpus& corpus, const LoaderOptions& options)
    : corpus_(corpus), options_(options) {
  check_shape(corpus, Split::train, options.rows, options.context, options.min_length);
  if (options.first_batch < 0) {
    invalid(fmt::format("first batch {}, expected at least 0", options.first_batch));
  }
  if (options.ahead < 0 || options.ahead > kMostAhead) {
    invalid(fmt::format("{} batches ahead, expected 0 to {}", options.ahead, kMostAhead));
  }
  window_.resize(static_cast<std::size_t>(options.context) + 1);
  ring_.resize(static_cast<std::size_t>(options.ahead) + 1);
  if (options.ahead > 0) thread_ = std::thread([this] { work(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  freed_one_.notify_one();
  if (thread_.joinable()) thread_.join();
}

// Leaves the batch unfinished when the loader is to end.
void Loader::fill(Batch& batch, int64_t index) {
  const Bits64 key = combine(combine(options_.seed, kWindows), static_cast<Bits64>(index));
  const auto windows = static_cast<Bits64>(corpus_.tokens(Split::train) - options_.context);
  const Lengths lengths(options_.min_length, options_.context, options_.seed, index);
  batch.index = index;
  batch.inputs.clear();
  batch.targets.clear();
  for (int64_t row = 0; row < options_.rows && !stop_; ++row) {
    const Bits64 first = combine(key, static_cast<Bits64>(row)) % windows;
    read_row(corpus_, Split::train, static_cast<int64_t>(first), lengths.of(row), window_, batch);
  }
  index_by_token(batch, corpus_.vocabulary());
}

void Loader::work() {
  std::unique_lock lock(mutex_);
  const auto slots = static_cast<int64_t>(ring_.size());
  while (true) {
    // The batch that was asked for last is still in use.
    freed_one_.wait(lock,
                    [&] { return stop_ || made_ - std::max<int64_t>(asked_ - 1, 0) < slots; });
    if (stop_) return;
    const int64_t index = made_;
    lock.unlock();
    const Clock::time_point begin = Clock::now();
    std::exception_ptr failure;
    try {
      fill(ring_[static_cast<std::size_t>(index % slots)], options_.first_batch + index);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    work_s_ += seconds_since(begin);
    failure_ = failure;
    if (!failure) ++made_;
    made_one_.notify_one();
    if (failure) return;
  }
}

const Batch& Loader::next() {
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(mutex_);
  if (options_.ahead == 0) {
    fill(ring_[0], options_.first_batch + asked_);
    ++asked_;
    work_s_ += seconds_since(begin);
    wait_s_ = work_s_;
    return ring_[0];
  }
  const int64_t index = asked_++;
  freed_one_.notify_one();
  made_one_.wait(lock, [&] { return made_ > index || failure_; });
  wait_s_ += seconds_since(begin);
  if (made_ <= index) std::rethrow_exception(failure_);
  return ring_[static_cast<std::size_t>(index) % ring_.size()];
}

double Loader::wait_s() const {
  const std::lock_guard lock(mutex_);
  return wait_s_;
}

double Loader::work_s() const {
  const std::lock_guard lock(mutex_);
  return work_s_;
}

std::vector<Batch> validation_batches(const Corpus& corpus, int64_t rows, int64_t context,
                                      int64_t count, int64_t min_length) {
  check_shape(corpus, Split::validation, rows, context, min_length);
  if (count < 1) invalid(fmt::format("{} batches to validate with, expected at least 1", count));
  const int64_t tokens = corpus.tokens(Split::validation);
  const int64_t apart = (tokens - 1) / context;  // windows that do not overlap
  const int64_t batches = std::clamp<int64_t>(apart / rows, 1, count);
  const int64_t wanted = batches * rows;
  const auto begin = [&](int64_t k) {
    if (wanted <= apart) return k * apart / wanted * context;
    return k * (tokens - context - 1) / (wanted - 1);
  };
  std::vector<int32_t> window(static_cast<std::size_t>(context) + 1);
  std::vector<Batch> all(static_cast<std::size_t>(batches));
  for (int64_t b = 0; b < batches; ++b) {
    Batch& batch = all[static_cast<std::size_t>(b)];
    const Lengths lengths(min_length, context, kValidationSeed, b);
    batch.index = b;
    for (int64_t row = 0; row < rows; ++row) {
      read_row(corpus, Split::validation, begin(b * rows + row), lengths.of(row), window, batch);
    }
    index_by_token(batch, corpus.vocabulary());
  }
  return all;
}

}  // namespace gallop::data
