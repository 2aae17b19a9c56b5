// SPDX-License-Identifier: MIT
#include "io/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "gallop/error.h"

namespace gallop::io {
namespace {

constexpr std::size_t kLargestWrite = std::size_t{1} << 30;  // Linux stops a write() below 2 GiB
constexpr int kNameAttempts = 1000;

// Unlike strerror, safe to call from several threads.
std::string describe(int error_number) { return std::generic_category().message(error_number); }

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A rename would replace a device or fail on a directory only after all bytes were written.
void refuse_unwritable_target(const std::string& path) {
  if (path.empty()) throw Error(ErrorCode::io, "cannot write '': expected a file path");
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return;
  const char* what = S_ISDIR(info.st_mode) ? "a directory" : "a device, pipe or socket";
  throw Error(ErrorCode::io,
              fmt::format("cannot write '{}': it is {}, expected a regular file", path, what));
}

// Survives power loss only if the directory entry is on disk too; some filesystems refuse this.
void sync_directory(const std::string& directory) noexcept {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

int sync_file(int fd) noexcept {
  int result = ::fsync(fd);
  while (result != 0 && errno == EINTR) result = ::fsync(fd);
  return result;
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  static std::atomic<std::uint64_t> counter{0};
  refuse_unwritable_target(path_);
  // A crashed process with the same pid may have left a temporary: take the next name then.
  for (int attempt = 0; attempt < kNameAttempts && fd_ < 0; ++attempt) {
    temporary_ = fmt::format("{}.tmp.{}.{}", path_, ::getpid(), counter++);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST && errno != EINTR) break;
  }
  if (fd_ >= 0) return;
  const int error_number = errno;
  throw Error(
      ErrorCode::io,
      fmt::format("cannot write '{}': creating a temporary file in directory '{}' failed: {}",
                  path_, directory_of(path_), describe(error_number)));
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::write(const void* data, std::size_t bytes) {
  require_open();
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(fd_, next, std::min(bytes, kLargestWrite));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("writing", errno);
    if (written == 0) fail("writing", ENOSPC);
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  require_open();
  if (sync_file(fd_) != 0) fail("syncing", errno);
  if (::close(std::exchange(fd_, -1)) != 0) fail("closing", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("renaming", errno);
  temporary_.clear();
  sync_directory(directory_of(path_));
}

void AtomicFile::fail(std::string_view action, int error_number) {
  discard();
  throw Error(ErrorCode::io, fmt::format("cannot write '{}': {} the temporary file failed: {}",
                                         path_, action, describe(error_number)));
}

void AtomicFile::require_open() const {
  if (fd_ >= 0) return;
  throw Error(ErrorCode::io,
              fmt::format("cannot write '{}': the file was already committed or an earlier write "
                          "failed, expected an open file",
                          path_));
}

void AtomicFile::discard() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

bool create_file(const std::string& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 && errno == EEXIST) return false;
  const ssize_t written = fd < 0 ? -1 : ::write(fd, text.data(), text.size());
  const int error_number = errno;
  if (fd >= 0) ::close(fd);
  if (written == static_cast<ssize_t>(text.size())) return true;
  throw Error(ErrorCode::io, fmt::format("cannot write '{}': {}", path, describe(error_number)));
}

}  // namespace gallop::io
