// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "lab/child_process.h"

namespace gallop::lab {

// A program that answers every line with a line, until the end of the scope.
class PeerProcess {
 public:
  explicit PeerProcess(const std::vector<std::string>& command) : child_(command) {}

  void send(const std::string& line);
  std::string receive();  // without the end of line; throws when the program has ended

 private:
  ChildProcess child_;
};

}  // namespace gallop::lab
