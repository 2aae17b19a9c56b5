// SPDX-License-Identifier: MIT
#include "data/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "gallop/error.h"

namespace gallop::data {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::io, fmt::format("cannot read '{}': {}", path, why));
}

std::string describe(int error_number) { return std::generic_category().message(error_number); }

// O_NONBLOCK: a pipe must not hang before it can be refused.
int open_to_read(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(path, describe(errno));
  return fd;
}

uint64_t file_size(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail(path, describe(errno));
  if (S_ISDIR(info.st_mode)) fail(path, "it is a directory, expected a file");
  if (!S_ISREG(info.st_mode)) fail(path, "it is not a regular file");
  if (info.st_size == 0) fail(path, "it is empty, expected tokens or text");
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)), fd_(open_to_read(path_)) {
  try {
    size_ = file_size(fd_, path_);
    void* memory = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd_, 0);
    if (memory == MAP_FAILED) fail(path_, describe(errno));
    data_ = static_cast<const std::byte*>(memory);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

MappedFile::~MappedFile() {
  ::munmap(const_cast<std::byte*>(data_), size_);
  ::close(fd_);
}

void MappedFile::require_whole() const {
  struct stat info {};
  if (::fstat(fd_, &info) == 0 && static_cast<uint64_t>(info.st_size) >= size_) return;
  fail(path_, fmt::format("it has {} bytes, expected the {} it had when it was opened",
                          info.st_size, size_));
}

}  // namespace gallop::data
