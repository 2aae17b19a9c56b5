// SPDX-License-Identifier: MIT
// One file as tokens: text (its bytes), nanoGPT's uint16 without a header, or llm.c's uint16 and
// uint32 behind 256 int32.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/mapped_file.h"

namespace gallop::data {

class TokenFile {
 public:
  enum class Kind { text, tokens };
  TokenFile(const std::string& path, Kind kind);

  const std::string& path() const { return file_.path(); }
  const char* format() const { return format_; }
  int64_t tokens() const { return tokens_; }
  int64_t possible() const { return int64_t{1} << (8 * width_); }  // tokens that fit the format
  void read(int64_t first, std::span<int32_t> out) const;

  // The largest token, in one pass; refuses the first that is not below `limit`.
  int64_t largest(int64_t limit) const;
  // Of all bytes up to 1 MiB, of samples from all over a file that has more.
  uint64_t hash() const;

 private:
  void read_header();
  const std::byte* at(int64_t token) const {
    return file_.data() + header_bytes_ + static_cast<uint64_t>(token) * width_;
  }
  template <class T>
  int64_t largest_of(int64_t limit) const;

  MappedFile file_;
  const char* format_ = "text";
  uint64_t header_bytes_ = 0;
  unsigned width_ = 1;  // bytes of a token
  int64_t tokens_ = 0;
};

}  // namespace gallop::data
