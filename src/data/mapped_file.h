// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gallop::data {

// A regular file that is not empty, seen as memory.
class MappedFile {
 public:
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }  // begins on a page
  uint64_t size() const { return size_; }

  // Reading what a file no longer has would end the process with SIGBUS: call this before.
  void require_whole() const;

 private:
  std::string path_;
  int fd_ = -1;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace gallop::data
