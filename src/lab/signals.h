// SPDX-License-Identifier: MIT
#pragma once

#include <csignal>

namespace gallop::lab {

// SIGINT and SIGTERM ask for an end after what is at hand; a second one ends at once. Sweeps then
// give what they have.
class Signals {
 public:
  Signals() {
    asked_ = 0;
    struct sigaction action = {};
    action.sa_handler = [](int) { asked_ = 1; };
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
  struct sigaction interrupt_ = {}, terminate_ = {};
};

}  // namespace gallop::lab
