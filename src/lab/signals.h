// SPDX-License-Identifier: MIT
#pragma once

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace gallop::lab {

// SIGINT and SIGTERM ask for an end after what is at hand; a second one ends at once. Sweeps then
// give what they have.
class Signals {
 public:
  // What is at hand may take a while: `answer` is said at once.
  explicit Signals(const char* answer = "") {
    asked_ = 0;
    answer_ = answer;
    length_ = std::strlen(answer);
    struct sigaction action = {};
    action.sa_handler = [](int) {
      asked_ = 1;
      const int error = errno;
      if (write(STDERR_FILENO, answer_, length_) < 0) errno = error;  // nobody reads it
    };
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigaction(SIGINT, &action, &interrupt_);
    sigaction(SIGTERM, &action, &terminate_);
  }
  ~Signals() {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGTERM, &terminate_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  static bool asked() { return asked_ != 0; }

 private:
  static inline volatile std::sig_atomic_t asked_ = 0;
  static inline const char* volatile answer_ = "";
  static inline volatile size_t length_ = 0;
  struct sigaction interrupt_ = {}, terminate_ = {};
};

}  // namespace gallop::lab
