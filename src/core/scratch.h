// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace gallop {

// Memory of temporaries, kept from step to step.
class Scratch {
 public:
  using Allocate = std::function<void*(size_t bytes)>;  // never null: it throws
  using Release = std::function<void(void*)>;

  Scratch(Allocate allocate, Release release)
      : allocate_(std::move(allocate)), release_(std::move(release)) {}
  ~Scratch() {
    for (const Piece& p : pieces_) release_(p.data);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* take(size_t bytes) {
    for (Piece& p : pieces_) {
      if (p.lent > 0 || p.bytes < bytes) continue;
      p.lent = 1;
      return p.data;
    }
    pieces_.push_back({allocate_(bytes), bytes, 1});
    return pieces_.back().data;
  }
  void share(const void* data) { count(data, 1); }
  void give(const void* data) { count(data, -1); }

 private:
  struct Piece {
    void* data;
    size_t bytes;
    int lent;  // how often
  };
  void count(const void* data, int change) {
    for (Piece& p : pieces_) p.lent += p.data == data ? change : 0;
  }
  Allocate allocate_;
  Release release_;
  std::vector<Piece> pieces_;
};

}  // namespace gallop
