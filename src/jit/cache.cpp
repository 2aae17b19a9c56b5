// SPDX-License-Identifier: MIT
#include "jit/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "gallop/error.h"
#include "io/atomic_file.h"

namespace gallop::jit {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kMark = "gallop01";
constexpr size_t kDigits = 32;
// Temporaries of a process that was killed.
constexpr auto kForgotten = std::chrono::hours(1);

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// After the bytes: their digest and the mark.
std::string seal(std::string_view bytes) { return digest(bytes) + std::string(kMark); }

std::optional<std::string> unsealed(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string all{std::istreambuf_iterator<char>(in), {}};
  const size_t tail = kDigits + kMark.size();
  if (!in || all.size() <= tail) return std::nullopt;
  const size_t size = all.size() - tail;
  if (std::string_view(all).substr(size) != seal(std::string_view(all).substr(0, size))) {
    return std::nullopt;
  }
  all.resize(size);
  return all;
}

// Code is loaded from it: it must be this user's alone.
std::string why_not(const std::string& folder) {
  struct stat s {};
  if (stat(folder.c_str(), &s) != 0) return std::strerror(errno);
  if (!S_ISDIR(s.st_mode)) return "it is not a folder";
  if (s.st_uid != geteuid()) return "it belongs to another user";
  if ((s.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "others may write to it";
  if (access(folder.c_str(), R_OK | W_OK | X_OK) != 0) return std::strerror(errno);
  return "";
}

}  // namespace

std::string digest(std::string_view text) {
  // FNV-1a with 128 bits.
  using Wide = unsigned __int128;
  constexpr Wide kPrime = (Wide{1} << 88) + 0x13b;
  Wide hash = (Wide{0x6c62272e07bb0142} << 64) + 0x62b821756295c58d;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return fmt::format("{:016x}{:016x}", static_cast<uint64_t>(hash >> 64),
                     static_cast<uint64_t>(hash));
}

Cache::Cache(std::string folder, int64_t most_bytes)
    : folder_(std::move(folder)), most_bytes_(most_bytes) {
  if (folder_.empty()) {
    problem_ = "neither GALLOP_CACHE, XDG_CACHE_HOME nor HOME is set";
    return;
  }
  std::error_code error;
  if (fs::exists(folder_, error)) problem_ = why_not(folder_);
}

Cache Cache::of_user() {
  int64_t megabytes = 256;
  if (const std::string text = environment("GALLOP_CACHE_MB"); !text.empty()) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), megabytes);
    if (error != std::errc() || end != text.data() + text.size() || megabytes < 0 ||
        megabytes > 1 << 30) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("GALLOP_CACHE_MB is '{}', expected a whole number of megabytes", text));
    }
  }
  std::string folder = environment("GALLOP_CACHE");
  if (folder.empty() && !environment("XDG_CACHE_HOME").empty()) {
    folder = environment("XDG_CACHE_HOME") + "/gallop";
  }
  if (folder.empty() && !environment("HOME").empty()) {
    folder = environment("HOME") + "/.cache/gallop";
  }
  return {folder, megabytes << 20};
}

std::optional<std::string> Cache::read(const std::string& name) const {
  if (!usable()) return std::nullopt;
  const std::string path = path_of(name);
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  std::optional<std::string> bytes = unsealed(path);
  if (!bytes) {
    fs::remove(path, error);
  } else {
    utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now
  }
  return bytes;
}

std::optional<std::string> Cache::find(const std::string& name) const {
  if (!read(name)) return std::nullopt;
  return path_of(name);
}

std::optional<std::string> Cache::keep(const std::string& name, std::string_view bytes) const {
  if (!usable() || static_cast<int64_t>(bytes.size()) > most_bytes_) return std::nullopt;
  std::error_code error;
  if (fs::create_directories(folder_, error)) {
    fs::permissions(folder_, fs::perms::owner_all, error);
  }
  if (!why_not(folder_).empty()) return std::nullopt;
  try {
    io::AtomicFile file(path_of(name));
    file.write(bytes.data(), bytes.size());
    const std::string tail = seal(bytes);
    file.write(tail.data(), tail.size());
    file.commit();
  } catch (const Error&) {
    return std::nullopt;  // a full disk must not stop a step
  }
  make_room(name);
  return path_of(name);
}

void Cache::make_room(const std::string& newest) const {
  struct Entry {
    fs::path path;
    fs::file_time_type used;
    int64_t bytes;
  };
  std::error_code error;
  std::vector<Entry> entries;
  int64_t total = 0;
  // Others may remove files meanwhile: what cannot be asked about is passed over.
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const auto used = it->last_write_time(gone);
    const auto bytes = static_cast<int64_t>(it->file_size(gone));
    if (gone) continue;
    if (it->path().filename().string().find(".tmp.") != std::string::npos) {
      if (fs::file_time_type::clock::now() - used > kForgotten) fs::remove(it->path(), gone);
      continue;
    }
    total += bytes;
    if (it->path().filename() != newest) entries.push_back({it->path(), used, bytes});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& e : entries) {
    if (total <= most_bytes_) return;
    fs::remove(e.path, error);
    total -= e.bytes;
  }
}

}  // namespace gallop::jit
