// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gallop::io {

// Writes PATH.tmp.<pid>.<counter> beside PATH and renames it over PATH on commit(), so that PATH
// always holds either the old bytes or all of the new ones. Without commit() nothing is left.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // After a failed write the temporary is gone and commit() refuses.
  void write(const void* data, std::size_t bytes);
  void commit();

  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(std::string_view action, int error_number);
  void require_open() const;
  void discard() noexcept;

  std::string path_;
  std::string temporary_;  // empty once renamed or removed
  int fd_ = -1;
};

void write_file_atomically(const std::string& path, std::string_view text);

// False: there is one already, by whomever.
bool create_file(const std::string& path, std::string_view text);

}  // namespace gallop::io
