// SPDX-License-Identifier: MIT
#include "io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "gallop/error.h"

namespace gallop::io {
namespace {

using nlohmann::json;

struct Dtype {
  std::string_view name;
  std::size_t size;
};
constexpr std::array<Dtype, 15> kDtypes = {{{"F64", 8},
                                            {"F32", 4},
                                            {"F16", 2},
                                            {"BF16", 2},
                                            {"I64", 8},
                                            {"I32", 4},
                                            {"I16", 2},
                                            {"I8", 1},
                                            {"U8", 1},
                                            {"U16", 2},
                                            {"U32", 4},
                                            {"U64", 8},
                                            {"BOOL", 1},
                                            {"F8_E4M3", 1},
                                            {"F8_E5M2", 1}}};

[[noreturn]] void refuse(const std::string& file, const std::string& sentence) {
  throw Error(ErrorCode::invalid_file, fmt::format("{}: {}", file, sentence));
}

// Accepts the one shape a header may have while the JSON is being scanned, so that deep nesting or
// long arrays are refused before they use memory.
class HeaderScanner final : public nlohmann::json_sax<json> {
 public:
  explicit HeaderScanner(const std::string& file) : file_(file) {}

  Header take() { return std::move(header_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override {
    if (value < 0) unexpected(fmt::to_string(value));
    return number_unsigned(static_cast<number_unsigned_t>(value));
  }
  bool number_unsigned(number_unsigned_t value) override;
  bool number_float(number_float_t, const string_t& text) override { unexpected(in_quotes(text)); }
  bool string(string_t& value) override;
  bool binary(binary_t&) override { unexpected("binary data"); }
  bool start_object(std::size_t) override;
  bool key(string_t& key) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    refuse(file_, fmt::format("the header is not valid JSON at its byte {}", position));
  }

 private:
  enum class Place { outside, top, metadata, tensor, shape, offsets };

  [[noreturn]] void unexpected(const std::string& what) const;
  [[noreturn]] void refuse_tensor(const std::string& sentence) const {
    refuse(file_, fmt::format("tensor {} {}", in_quotes(name_), sentence));
  }
  void tensor_field(const std::string& key);
  void dimension(uint64_t size);

  const std::string& file_;
  Header header_;
  Place place_ = Place::outside;
  bool metadata_seen_ = false;
  std::string name_;   // the key at the top level
  std::string field_;  // the key below it
  TensorEntry entry_;
};

void HeaderScanner::unexpected(const std::string& what) const {
  switch (place_) {
    case Place::outside:
      refuse(file_, fmt::format("the header is {}, expected an object", what));
    case Place::top:
      refuse(file_, fmt::format("entry {} is {}, expected an object", in_quotes(name_), what));
    case Place::metadata:
      refuse(file_, fmt::format("entry {} of {} is {}, expected a string", in_quotes(field_),
                                kMetadataKey, what));
    case Place::tensor:
      refuse_tensor(fmt::format("has {} as {}, expected {}", what, field_,
                                field_ == "dtype" ? "a string" : "an array"));
    case Place::shape:
    case Place::offsets:
      break;
  }
  refuse_tensor(fmt::format("has {} in {}, expected integers from 0 to {}", what, field_,
                            std::numeric_limits<int64_t>::max()));
}

bool HeaderScanner::start_object(std::size_t) {
  if (place_ == Place::outside) {
    place_ = Place::top;
  } else if (place_ == Place::top) {
    place_ = name_ == kMetadataKey ? Place::metadata : Place::tensor;
    entry_ = {};
  } else {
    unexpected("an object");
  }
  return true;
}

bool HeaderScanner::key(string_t& key) {
  if (place_ == Place::metadata) {
    if (header_.metadata.contains(key)) {
      refuse(file_, fmt::format("{} has the key {} twice, expected it once", kMetadataKey,
                                in_quotes(key)));
    }
    field_ = std::move(key);
  } else if (place_ == Place::tensor) {
    tensor_field(key);
  } else {
    const bool is_metadata = key == kMetadataKey;
    if (is_metadata ? metadata_seen_ : header_.tensors.contains(key)) {
      refuse(file_,
             fmt::format("the header has the key {} twice, expected it once", in_quotes(key)));
    }
    metadata_seen_ |= is_metadata;
    name_ = std::move(key);
  }
  return true;
}

void HeaderScanner::tensor_field(const std::string& key) {
  bool seen = false;
  if (key == "dtype") {
    seen = entry_.dtype.has_value();
  } else if (key == "shape") {
    seen = entry_.shape.has_value();
  } else if (key == "data_offsets") {
    seen = entry_.offsets.has_value();
  } else {
    refuse_tensor(fmt::format("has the field {}, expected only dtype, shape and data_offsets",
                              in_quotes(key)));
  }
  if (seen) refuse_tensor(fmt::format("has the field {} twice, expected it once", key));
  field_ = key;
}

bool HeaderScanner::end_object() {
  if (place_ == Place::tensor) {
    const char* missing = !entry_.dtype     ? "dtype"
                          : !entry_.shape   ? "shape"
                          : !entry_.offsets ? "data_offsets"
                                            : nullptr;
    if (missing) {
      refuse_tensor(fmt::format("has no {}, expected dtype, shape and data_offsets", missing));
    }
    header_.tensors.emplace(name_, std::exchange(entry_, {}));
  }
  place_ = place_ == Place::top ? Place::outside : Place::top;
  return true;
}

bool HeaderScanner::start_array(std::size_t) {
  if (place_ == Place::tensor && field_ == "shape") {
    place_ = Place::shape;
    entry_.shape.emplace();
  } else if (place_ == Place::tensor && field_ == "data_offsets") {
    place_ = Place::offsets;
    entry_.offsets.emplace();
  } else {
    unexpected("an array");
  }
  return true;
}

bool HeaderScanner::end_array() {
  if (place_ == Place::offsets && entry_.offsets->size() != 2) {
    refuse_tensor(
        fmt::format("has {} number(s) in data_offsets, expected 2", entry_.offsets->size()));
  }
  place_ = Place::tensor;
  return true;
}

bool HeaderScanner::string(string_t& value) {
  if (place_ == Place::metadata) {
    header_.metadata.emplace(field_, std::move(value));
  } else if (place_ == Place::tensor && field_ == "dtype") {
    if (dtype_size(value) == 0) {
      refuse_tensor(
          fmt::format("has dtype {}, expected one of {}", in_quotes(value), dtype_names()));
    }
    entry_.dtype = std::move(value);
  } else {
    unexpected("a string");
  }
  return true;
}

bool HeaderScanner::number_unsigned(number_unsigned_t value) {
  if (place_ == Place::shape) {
    dimension(value);
  } else if (place_ == Place::offsets) {
    if (entry_.offsets->size() == 2) {
      refuse_tensor("has more than 2 numbers in data_offsets, expected 2");
    }
    entry_.offsets->push_back(value);
  } else {
    unexpected(fmt::to_string(value));
  }
  return true;
}

void HeaderScanner::dimension(uint64_t size) {
  if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    unexpected(fmt::to_string(size));
  }
  if (entry_.shape->size() == kMostDimensions) {
    refuse_tensor(fmt::format("has more than {} dimensions, expected at most {}", kMostDimensions,
                              kMostDimensions));
  }
  entry_.shape->push_back(static_cast<int64_t>(size));
}

void check_size(const std::string& file, const std::string& name, const TensorEntry& entry) {
  const std::optional<uint64_t> expected = tensor_bytes(*entry.dtype, *entry.shape);
  if (!expected) {
    refuse(file, fmt::format("tensor {} has shape {} of {}, expected fewer than 2^63 bytes",
                             in_quotes(name), list(*entry.shape), *entry.dtype));
  }
  if (entry.begin() > entry.end() || entry.end() - entry.begin() != *expected) {
    refuse(file, fmt::format("tensor {} has data_offsets {}, expected {} bytes for shape {} of {}",
                             in_quotes(name), entry.range(), *expected, list(*entry.shape),
                             *entry.dtype));
  }
}

// In the order of their offsets, the tensors must follow one another from 0 to data_bytes.
void check_layout(const std::string& file, const Header& header, uint64_t data_bytes) {
  std::vector<const std::pair<const std::string, TensorEntry>*> order;
  for (const auto& tensor : header.tensors) {
    check_size(file, tensor.first, tensor.second);
    order.push_back(&tensor);
  }
  std::ranges::sort(order, {},
                    [](const auto* t) { return std::pair(t->second.begin(), t->second.end()); });
  uint64_t covered = 0;
  for (const auto* tensor : order) {
    const auto& [name, entry] = *tensor;
    if (entry.end() > data_bytes) {
      refuse(file, fmt::format("tensor {} has data_offsets {}, expected them within the {} bytes "
                               "of data in the file",
                               in_quotes(name), entry.range(), data_bytes));
    }
    if (entry.begin() != covered) {
      refuse(file, fmt::format("tensor {} has data_offsets {} which {}, expected it to start at {}",
                               in_quotes(name), entry.range(),
                               entry.begin() < covered ? "overlap another tensor" : "leave a hole",
                               covered));
    }
    covered = entry.end();
  }
  if (covered != data_bytes) {
    refuse(file, fmt::format("the file has {} bytes of data, expected {} for its tensors",
                             data_bytes, covered));
  }
}

}  // namespace

std::size_t dtype_size(std::string_view dtype) {
  const auto* found = std::ranges::find(kDtypes, dtype, &Dtype::name);
  return found == kDtypes.end() ? 0 : found->size;
}

std::string dtype_names() {
  std::string names;
  for (const Dtype& dtype : kDtypes) {
    names += fmt::format("{}{}", names.empty() ? "" : " ", dtype.name);
  }
  return names;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 100;
  std::size_t length = std::min(text.size(), kLongest);
  const auto continues_utf8 = [&](std::size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
  };
  while (length > 0 && length < text.size() && continues_utf8(length)) --length;
  std::string out = "'";
  for (const char c : text.substr(0, length)) {
    const auto code = static_cast<unsigned char>(c);
    out += code < 0x20 || code == 0x7F ? '?' : c;
  }
  return out + (length < text.size() ? "...'" : "'");
}

std::string list(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::optional<uint64_t> tensor_bytes(std::string_view dtype, const std::vector<int64_t>& shape) {
  auto bytes = static_cast<int64_t>(dtype_size(dtype));
  bool empty = false;
  for (const int64_t size : shape) {
    if (size == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, size, &bytes)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : static_cast<uint64_t>(bytes);
}

uint64_t header_length(const std::byte* first, uint64_t file_bytes, const std::string& file) {
  if (file_bytes < kLengthBytes) {
    refuse(file,
           fmt::format("the file has {} bytes, expected at least {}", file_bytes, kLengthBytes));
  }
  uint64_t length = 0;
  for (unsigned i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<uint64_t>(first[i]) << (8 * i);
  }
  if (length > kLargestHeader) {
    refuse(file,
           fmt::format("the header length is {}, expected at most {}", length, kLargestHeader));
  }
  if (length > file_bytes - kLengthBytes) {
    refuse(file, fmt::format("the header length is {}, expected at most {} in a file of {} bytes",
                             length, file_bytes - kLengthBytes, file_bytes));
  }
  return length;
}

Header scan_header(std::string_view text, uint64_t data_bytes, const std::string& file) {
  // The JSON library would skip a byte order mark and stop at a NUL.
  if (text.empty() || text.front() != '{') {
    refuse(file, "the header does not start with '{', expected a JSON object");
  }
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    refuse(file, fmt::format("the header has a NUL at its byte {}, expected JSON text", nul));
  }
  HeaderScanner scanner(file);
  json::sax_parse(text.begin(), text.end(), &scanner);
  Header header = scanner.take();
  check_layout(file, header, data_bytes);
  return header;
}

}  // namespace gallop::io
