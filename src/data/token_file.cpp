// SPDX-License-Identifier: MIT
#include "data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/random.h"
#include "gallop/error.h"

static_assert(std::endian::native == std::endian::little, "tokens are read unchanged");

namespace gallop::data {
namespace {

constexpr uint64_t kHeaderBytes = 1024;
// As nanoGPT tokens these begin with 55432 and 55713, which GPT-2's 50257 do not have.
constexpr int32_t kMagic16 = 20240520, kMagic32 = 20240801;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::invalid_file, fmt::format("{}: {}", path, what));
}

template <class T>
void widen(const std::byte* from, std::span<int32_t> out) {
  const T* tokens = reinterpret_cast<const T*>(from);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>(tokens[i]);
}

}  // namespace

TokenFile::TokenFile(const std::string& path, Kind kind) : file_(path) {
  if (kind == Kind::tokens) read_header();
  tokens_ = static_cast<int64_t>((file_.size() - header_bytes_) / width_);
}

void TokenFile::read_header() {
  std::array<int32_t, 3> header{};  // magic, version, count
  std::memcpy(header.data(), file_.data(), std::min<uint64_t>(file_.size(), sizeof(header)));
  const auto [magic, version, count] = header;
  if (magic != kMagic16 && magic != kMagic32) {
    format_ = "nanoGPT tokens";
    width_ = 2;
    if (file_.size() % 2 == 0) return;
    refuse(path(), fmt::format("it has {} bytes, expected an even number, 2 a token, or the header "
                               "of llm.c",
                               file_.size()));
  }
  format_ = "llm.c tokens";
  header_bytes_ = kHeaderBytes;
  width_ = magic == kMagic16 ? 2 : 4;
  const int known = magic == kMagic16 ? 1 : 7;
  if (version != known && file_.size() >= sizeof(header)) {
    refuse(path(), fmt::format("its header has magic {} and version {}, expected version {}", magic,
                               version, known));
  }
  const uint64_t expected = kHeaderBytes + width_ * static_cast<uint64_t>(std::max(count, 0));
  if (count < 0 || file_.size() != expected) {
    refuse(path(), fmt::format("its header promises {} tokens, {} bytes in all, but it has {}",
                               count, expected, file_.size()));
  }
  if (count == 0) refuse(path(), "its header promises 0 tokens, expected at least one");
}

void TokenFile::read(int64_t first, std::span<int32_t> out) const {
  file_.require_whole();
  if (width_ == 1) widen<uint8_t>(at(first), out);
  if (width_ == 2) widen<uint16_t>(at(first), out);
  if (width_ == 4) widen<uint32_t>(at(first), out);
}

template <class T>
int64_t TokenFile::largest_of(int64_t limit) const {
  constexpr int64_t kBlock = 4096;  // a known count, so that it is vectorised
  const T* tokens = reinterpret_cast<const T*>(at(0));
  T largest = 0;
  for (int64_t first = 0; first < tokens_; first += kBlock) {
    const int64_t count = std::min(kBlock, tokens_ - first);
    T most = 0;
    if (count == kBlock) {
      for (int64_t i = 0; i < kBlock; ++i) most = std::max(most, tokens[first + i]);
    } else {
      for (int64_t i = 0; i < count; ++i) most = std::max(most, tokens[first + i]);
    }
    if (most >= limit) {
      const T* bad =
          std::find_if(tokens + first, tokens + first + count, [&](T t) { return t >= limit; });
      refuse(path(), fmt::format("token {} at position {}, expected tokens below {}", *bad,
                                 bad - tokens, limit));
    }
    largest = std::max(largest, most);
  }
  return largest;
}

int64_t TokenFile::largest(int64_t limit) const {
  file_.require_whole();
  if (width_ == 1) return largest_of<uint8_t>(limit);
  return width_ == 2 ? largest_of<uint16_t>(limit) : largest_of<uint32_t>(limit);
}

uint64_t TokenFile::hash() const {
  constexpr uint64_t kSamples = 256, kSampleBytes = 4096;
  file_.require_whole();
  const uint64_t size = file_.size() - header_bytes_;
  uint64_t hash = combine(width_, size);
  const auto add = [&](uint64_t begin, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, at(0) + begin + i, std::min<uint64_t>(sizeof(word), bytes - i));
      hash = combine(hash, word);
    }
  };
  if (size <= kSamples * kSampleBytes) {
    add(0, size);
  } else {
    for (uint64_t k = 0; k < kSamples; ++k) {
      add((size - kSampleBytes) / (kSamples - 1) * k, kSampleBytes);
    }
    add(size - kSampleBytes, kSampleBytes);
  }
  return hash;
}

}  // namespace gallop::data
