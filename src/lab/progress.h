// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace gallop::lab {

// Tells on stderr how far a long piece of work has come: one redrawn line on a terminal, otherwise
// a plain line every 10 s. Not thread-safe: one thread advances it.
class Progress {
 public:
  Progress(std::string label, int64_t total);  // total <= 0: not known, no bar and no ETA
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(int64_t n = 1, std::string_view detail = {});

 private:
  using Clock = std::chrono::steady_clock;

  std::string line(Clock::time_point now, std::string_view detail) const;
  void draw(Clock::time_point now, std::string_view detail);

  std::string label_;
  int64_t total_;
  int64_t done_ = 0;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_;
  Clock::time_point last_;  // of the last draw, or the start
};

}  // namespace gallop::lab
