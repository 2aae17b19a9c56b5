// SPDX-License-Identifier: MIT
// Compiled code on disk, from one run to the next. Several processes may use the folder at once:
// files appear whole or not at all, carry a checksum, and are removed oldest use first when they
// are too many.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gallop::jit {

// 128 bits of a text, as 32 hexadecimal digits.
std::string digest(std::string_view text);

class Cache {
 public:
  // An empty folder, or one that cannot be used, keeps nothing. It is made when it is first needed.
  Cache(std::string folder, int64_t most_bytes);
  // GALLOP_CACHE, or gallop/ in XDG_CACHE_HOME or ~/.cache; at most GALLOP_CACHE_MB, 256.
  static Cache of_user();

  const std::string& folder() const { return folder_; }
  // Whether it can be used, and why not.
  bool usable() const { return problem_.empty(); }
  const std::string& problem() const { return problem_; }

  // Where the entry lies, or nothing: not there, or damaged, and then it is removed. What follows
  // its bytes in the file does not disturb a loader.
  std::optional<std::string> find(const std::string& name) const;
  std::optional<std::string> read(const std::string& name) const;  // its bytes
  // Where it lies now; nothing if it could not be kept, which is no error.
  std::optional<std::string> keep(const std::string& name, std::string_view bytes) const;

 private:
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  void make_room(const std::string& newest) const;

  std::string folder_, problem_;
  int64_t most_bytes_;
};

}  // namespace gallop::jit
