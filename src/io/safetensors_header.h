// SPDX-License-Identifier: MIT
// The header of a safetensors file. Layout: header length N (8 bytes, little-endian), N bytes of
// JSON, tensor data to the end.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace gallop::io {

inline constexpr uint64_t kLengthBytes = 8;
inline constexpr uint64_t kLargestHeader = 100'000'000;  // the reference implementation's limit
inline constexpr std::size_t kMostDimensions = 64;
inline constexpr std::string_view kMetadataKey = "__metadata__";

struct TensorEntry {
  std::optional<std::string> dtype;
  std::optional<std::vector<int64_t>> shape;
  std::optional<std::vector<uint64_t>> offsets;  // begin and end, counted from the first data byte

  uint64_t begin() const { return (*offsets)[0]; }
  uint64_t end() const { return (*offsets)[1]; }
  std::string range() const { return fmt::format("[{}, {}]", begin(), end()); }
};

struct Header {
  std::map<std::string, std::string> metadata;
  std::map<std::string, TensorEntry> tensors;
};

// Both refuse what is not exactly as the format wants it; `file` names it in errors.
uint64_t header_length(const std::byte* first, uint64_t file_bytes, const std::string& file);
Header scan_header(std::string_view text, uint64_t data_bytes, const std::string& file);

// Nothing when it exceeds int64, even if another dimension is 0: strides would overflow too.
std::optional<uint64_t> tensor_bytes(std::string_view dtype, const std::vector<int64_t>& shape);

std::string dtype_names();
std::string in_quotes(std::string_view text);  // short and printable whatever a file contains
std::string list(const std::vector<int64_t>& shape);

}  // namespace gallop::io
