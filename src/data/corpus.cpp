// SPDX-License-Identifier: MIT
#include "data/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "core/random.h"
#include "data/synthetic.h"
#include "data/token_file.h"
#include "gallop/error.h"

namespace gallop::data {
namespace {

[[noreturn]] void invalid(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, what);
}

TokenFile::Kind kind_of(const std::string& path) {
  return path.ends_with(".bin") ? TokenFile::Kind::tokens : TokenFile::Kind::text;
}

class FileCorpus final : public Corpus {
 public:
  FileCorpus(const std::string& path, const CorpusOptions& options);
  FileCorpus(const std::string& train, const std::string& validation, const CorpusOptions& options);

  int vocabulary() const override { return vocabulary_; }
  int64_t tokens(Split split) const override { return part(split).tokens; }
  void read(Split split, int64_t first, std::span<int32_t> out) const override {
    check_range(split, first, out.size());
    part(split).file->read(part(split).first + first, out);
  }
  std::string describe() const override;
  std::string fingerprint() const override;
  bool bytes() const override { return bytes_; }

 private:
  struct Part {
    std::shared_ptr<const TokenFile> file;
    int64_t first, tokens;
  };
  const Part& part(Split split) const { return split == Split::train ? train_ : validation_; }
  bool one_file() const { return train_.file == validation_.file; }
  void find_vocabulary(int wanted);

  Part train_, validation_;
  bool bytes_ = false;
  int vocabulary_ = 0;
  bool vocabulary_found_ = false;  // as the largest token + 1
};

FileCorpus::FileCorpus(const std::string& path, const CorpusOptions& options) {
  const auto file = std::make_shared<const TokenFile>(path, kind_of(path));
  const int64_t all = file->tokens();
  int64_t validation = 0;
  if (options.validation_share > 0) {
    if (all < 2) {
      throw Error(ErrorCode::invalid_file,
                  fmt::format("{}: it has 1 token, expected at least 2: one to train with and one "
                              "to validate",
                              path));
    }
    const double share = options.validation_share * static_cast<double>(all);
    validation = std::clamp<int64_t>(std::llround(share), 1, all - 1);
  }
  train_ = {file, 0, all - validation};
  validation_ = {file, all - validation, validation};
  bytes_ = kind_of(path) == TokenFile::Kind::text;
  find_vocabulary(options.vocabulary);
}

FileCorpus::FileCorpus(const std::string& train, const std::string& validation,
                       const CorpusOptions& options) {
  if (kind_of(train) != kind_of(validation)) {
    invalid(
        fmt::format("corpus '{},{}' has tokens in one file and text in the other, expected two "
                    "of a kind",
                    train, validation));
  }
  const auto whole = [](const std::string& path) {
    const auto file = std::make_shared<const TokenFile>(path, kind_of(path));
    return Part{file, 0, file->tokens()};
  };
  train_ = whole(train);
  validation_ = whole(validation);
  bytes_ = kind_of(train) == TokenFile::Kind::text;
  find_vocabulary(options.vocabulary);
}

// All of a text's 256 bytes count, whether they occur or not: a model of it can read any text.
void FileCorpus::find_vocabulary(int wanted) {
  vocabulary_ = wanted > 0 ? wanted : bytes_ ? 256 : 0;
  vocabulary_found_ = vocabulary_ == 0;
  const int64_t limit = vocabulary_found_ ? std::numeric_limits<int32_t>::max() : vocabulary_;
  int64_t largest = 0;
  for (const Part* part : {&train_, &validation_}) {
    const bool same = part == &validation_ && one_file();
    if (same || (!vocabulary_found_ && part->file->possible() <= limit)) continue;
    largest = std::max(largest, part->file->largest(limit));
  }
  if (vocabulary_found_) vocabulary_ = static_cast<int>(largest + 1);
}

std::string FileCorpus::describe() const {
  const std::string names =
      one_file() ? train_.file->path() : train_.file->path() + " and " + validation_.file->path();
  return fmt::format("{}: {}, {} to train with and {} to validate, vocabulary {}{}", names,
                     train_.file->format(), train_.tokens, validation_.tokens, vocabulary_,
                     vocabulary_found_ ? " (the largest token + 1)" : "");
}

std::string FileCorpus::fingerprint() const {
  uint64_t hash = combine(train_.file->hash(), static_cast<uint64_t>(train_.tokens));
  if (!one_file()) hash = combine(hash, validation_.file->hash());
  return fmt::format("{}-{:016x}", bytes_ ? "text" : "tokens", hash);
}

}  // namespace

const char* name(Split split) { return split == Split::train ? "train" : "validation"; }

void Corpus::check_range(Split split, int64_t first, std::size_t count) const {
  const int64_t all = tokens(split);
  if (first >= 0 && first <= all && count <= static_cast<std::size_t>(all - first)) return;
  invalid(
      fmt::format("reading {} tokens from position {}, expected a place within the {} of the "
                  "{} split",
                  count, first, all, name(split)));
}

std::unique_ptr<Corpus> open_corpus(const std::string& source, const CorpusOptions& options) {
  const double share = options.validation_share;
  if (!(share >= 0 && share < 1)) {
    invalid(fmt::format("validation share {}, expected at least 0 and less than 1", share));
  }
  if (options.vocabulary < 0) {
    invalid(fmt::format("vocabulary {}, expected at least 1, or 0 for the corpus's own",
                        options.vocabulary));
  }
  if (source.empty()) invalid("corpus '', expected a file or synthetic");
  if (source == "synthetic" || source.starts_with("synthetic:")) {
    return std::make_unique<SyntheticCorpus>(parse_synthetic(source, options));
  }
  const std::size_t comma = source.find(',');
  std::error_code ignored;
  if (comma == std::string::npos || std::filesystem::exists(source, ignored)) {
    return std::make_unique<FileCorpus>(source, options);
  }
  const std::string train = source.substr(0, comma), validation = source.substr(comma + 1);
  if (train.empty() || validation.empty() || validation.find(',') != std::string::npos) {
    invalid(fmt::format("corpus '{}', expected one file, or two as TRAIN,VALIDATION", source));
  }
  return std::make_unique<FileCorpus>(train, validation, options);
}

}  // namespace gallop::data
