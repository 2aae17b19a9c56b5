// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "gallop/error.h"
#include "io/atomic_file.h"
#include "io/safetensors_header.h"

namespace gallop::io {
namespace {

using nlohmann::json;

void check_output(const TensorOut& tensor) {
  const auto reject = [&](const std::string& sentence) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("tensor {} {}", in_quotes(tensor.name), sentence));
  };
  if (tensor.name == kMetadataKey) reject("has a reserved name, expected another");
  if (dtype_size(tensor.dtype) == 0) {
    reject(fmt::format("has dtype {}, expected one of {}", in_quotes(tensor.dtype), dtype_names()));
  }
  if (tensor.shape.size() > kMostDimensions) {
    reject(fmt::format("has {} dimensions, expected at most {}", tensor.shape.size(),
                       kMostDimensions));
  }
  if (std::ranges::any_of(tensor.shape, [](int64_t size) { return size < 0; })) {
    reject(fmt::format("has shape {}, expected no negative dimension", list(tensor.shape)));
  }
  const std::optional<uint64_t> expected = tensor_bytes(tensor.dtype, tensor.shape);
  if (expected != tensor.bytes) {
    reject(fmt::format("has {} bytes, expected {} for shape {} of {}", tensor.bytes,
                       expected ? fmt::to_string(*expected) : "fewer than 2^63", list(tensor.shape),
                       tensor.dtype));
  }
  if (tensor.data == nullptr && tensor.bytes > 0) reject("has no data, expected a pointer to it");
}

std::string json_string(const std::string& text) {
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is not valid UTF-8, expected names and metadata that are",
                            in_quotes(text)));
  }
}

std::string make_header(std::span<const TensorOut> tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string entries;
  for (const auto& [key, value] : metadata) {
    entries +=
        fmt::format("{}{}:{}", entries.empty() ? "" : ",", json_string(key), json_string(value));
  }
  std::string text = "{";
  if (!metadata.empty()) text += fmt::format("\"{}\":{{{}}}", kMetadataKey, entries);
  std::set<std::string_view> names;
  uint64_t begin = 0;
  for (const TensorOut& tensor : tensors) {
    check_output(tensor);
    if (!names.insert(tensor.name).second) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("tensor {} was given twice, expected it once", in_quotes(tensor.name)));
    }
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        text.size() > 1 ? "," : "", json_string(tensor.name), tensor.dtype,
                        fmt::join(tensor.shape, ","), begin, begin + tensor.bytes);
    begin += tensor.bytes;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kLargestHeader) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the names and metadata make a header of {} bytes, expected at most {}",
                            text.size(), kLargestHeader));
  }
  return text;
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const TensorOut> tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = make_header(tensors, metadata);
  std::array<unsigned char, kLengthBytes> length{};
  for (unsigned i = 0; i < kLengthBytes; ++i) {
    length[i] = static_cast<unsigned char>(header.size() >> (8 * i));
  }
  AtomicFile file(path);
  file.write(length.data(), length.size());
  file.write(header.data(), header.size());
  for (const TensorOut& tensor : tensors) file.write(tensor.data, tensor.bytes);
  file.commit();
}

}  // namespace gallop::io
