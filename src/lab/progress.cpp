// SPDX-License-Identifier: MIT
#include "lab/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lab/terminal.h"

namespace gallop::lab {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr auto kPlainInterval = std::chrono::seconds(10);
constexpr int kBarCells = 20;
constexpr std::string_view kEnd = "ended";  // the last plain line's detail

void write_stderr(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)),
      total_(total),
      terminal_(stderr_redraws()),
      start_(Clock::now()),
      last_(start_) {
  if (terminal_) draw(start_, {});
}

Progress::~Progress() {
  if (!drawn_) return;
  try {
    write_stderr(terminal_ ? "\r\x1b[K" : line(Clock::now(), kEnd) + '\n');
  } catch (...) {  // progress is never worth ending the program
  }
}

void Progress::advance(int64_t n, std::string_view detail) {
  done_ += n;
  const Clock::time_point now = Clock::now();
  if (now - last_ >= (terminal_ ? Clock::duration(kRedrawInterval) : kPlainInterval)) {
    draw(now, detail);
  }
}

std::string Progress::line(Clock::time_point now, std::string_view detail) const {
  const double elapsed = Seconds(now - start_).count();
  std::string text = label_ + ' ';
  if (total_ > 0) {
    const double share =
        std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0., 1.);
    const auto filled = static_cast<size_t>(share * kBarCells);
    if (terminal_) {
      text += '[' + std::string(filled, '#') + std::string(kBarCells - filled, '.') + "] ";
    }
    text += fmt::format("{}/{}  {}", done_, total_, clock_text(elapsed));
    if (share > 0 && share < 1 && detail != kEnd)
      text += "  ETA " + clock_text(elapsed * (1 - share) / share);
  } else {
    text += fmt::format("{}  {}", done_, clock_text(elapsed));
  }
  if (!detail.empty()) text += fmt::format("  {}", detail);
  return text;
}

void Progress::draw(Clock::time_point now, std::string_view detail) {
  const std::string text = line(now, detail);
  write_stderr(terminal_ ? fmt::format("\r{}\x1b[K", cut(text, terminal_columns() - 1))
                         : text + '\n');
  last_ = now;
  drawn_ = true;
}

}  // namespace gallop::lab
