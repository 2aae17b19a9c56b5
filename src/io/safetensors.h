// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gallop::io {

struct TensorView {
  std::string dtype;
  std::vector<int64_t> shape;
  const std::byte* data;  // may be unaligned for the dtype: copy it out with memcpy
  std::size_t bytes;      // equals product(shape) * dtype_size(dtype)
};

// A file whose header was fully checked: the tensors cover the data exactly, without overlaps.
class SafetensorsFile {
 public:
  // Reads the whole file into memory that this object owns.
  static SafetensorsFile open(const std::string& path);
  // Looks at bytes, which must outlive the result; name stands for the path in errors.
  static SafetensorsFile parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  const TensorView* find(const std::string& key) const;  // nullptr when absent

 private:
  SafetensorsFile() = default;

  std::string name_;
  std::unique_ptr<std::byte[]> owned_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, TensorView> tensors_;
};

struct TensorOut {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  const void* data;
  std::size_t bytes;
};

// Replaces path atomically. Tensors are laid out in the order given, without gaps.
void write_safetensors(const std::string& path, std::span<const TensorOut> tensors,
                       const std::map<std::string, std::string>& metadata);

std::size_t dtype_size(std::string_view dtype);  // bytes of one element, 0 if unknown

}  // namespace gallop::io
