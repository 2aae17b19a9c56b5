// SPDX-License-Identifier: MIT
#include "io/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "gallop/error.h"
#include "io/safetensors_header.h"

static_assert(std::endian::native == std::endian::little, "tensor data is copied unchanged");

namespace gallop::io {
namespace {

std::map<std::string, TensorView> make_views(Header& header, const std::byte* data) {
  std::map<std::string, TensorView> views;
  for (auto& [name, entry] : header.tensors) {
    views.emplace_hint(
        views.end(), name,
        TensorView{std::move(*entry.dtype), std::move(*entry.shape), data + entry.begin(),
                   static_cast<std::size_t>(entry.end() - entry.begin())});
  }
  return views;
}

[[noreturn]] void fail_to_read(const std::string& path, std::string_view why) {
  throw Error(ErrorCode::io, fmt::format("cannot read '{}': {}", path, why));
}

[[noreturn]] void fail_with_errno(const std::string& path, int error_number) {
  fail_to_read(path, std::generic_category().message(error_number));
}

class InputFile {
 public:
  // O_NONBLOCK: a pipe must not hang before it can be refused.
  explicit InputFile(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) fail_with_errno(path_, errno);
  }
  ~InputFile() { ::close(fd_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  uint64_t size() const {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) fail_with_errno(path_, errno);
    if (S_ISDIR(info.st_mode)) fail_to_read(path_, "it is a directory, expected a file");
    if (!S_ISREG(info.st_mode)) fail_to_read(path_, "it is not a regular file");
    return static_cast<uint64_t>(info.st_size);
  }

  void read(std::byte* to, uint64_t bytes) const {
    constexpr uint64_t kLargestRead = uint64_t{1} << 30;  // Linux stops a read() below 2 GiB
    for (uint64_t done = 0; done < bytes;) {
      const ssize_t got = ::read(fd_, to + done, std::min(bytes - done, kLargestRead));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_with_errno(path_, errno);
      if (got == 0) {
        fail_to_read(path_, fmt::format("it ended {} bytes before the size it had when opened, "
                                        "expected a file that does not change",
                                        bytes - done));
      }
      done += static_cast<uint64_t>(got);
    }
  }

 private:
  const std::string& path_;
  int fd_;
};

std::unique_ptr<std::byte[]> allocate(uint64_t bytes, const std::string& path) {
  std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[bytes]);
  if (!memory) fail_to_read(path, fmt::format("no memory for its {} bytes of data", bytes));
  return memory;
}

}  // namespace

// Read rather than mapped: truncating a mapped file kills the process with SIGBUS when its pages
// are touched, which no library can turn into an Error.
SafetensorsFile SafetensorsFile::open(const std::string& path) {
  const InputFile input(path);
  const uint64_t file_bytes = input.size();
  std::array<std::byte, kLengthBytes> first{};
  input.read(first.data(), std::min(file_bytes, kLengthBytes));
  const uint64_t length = header_length(first.data(), file_bytes, path);
  std::string text(length, '\0');
  input.read(reinterpret_cast<std::byte*>(text.data()), length);

  const uint64_t data_bytes = file_bytes - kLengthBytes - length;
  Header header = scan_header(text, data_bytes, path);
  SafetensorsFile file;
  file.name_ = path;
  file.owned_ = allocate(data_bytes, path);
  input.read(file.owned_.get(), data_bytes);
  file.tensors_ = make_views(header, file.owned_.get());
  file.metadata_ = std::move(header.metadata);
  return file;
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::string name) {
  const uint64_t length = header_length(bytes.data(), bytes.size(), name);
  const auto text = bytes.subspan(kLengthBytes, length);
  const auto data = bytes.subspan(kLengthBytes + length);
  Header header =
      scan_header({reinterpret_cast<const char*>(text.data()), text.size()}, data.size(), name);
  SafetensorsFile file;
  file.name_ = std::move(name);
  file.tensors_ = make_views(header, data.data());
  file.metadata_ = std::move(header.metadata);
  return file;
}

const TensorView* SafetensorsFile::find(const std::string& key) const {
  const auto found = tensors_.find(key);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace gallop::io
