// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gallop::lab {

// A program that answers every line with a line, until the end of the scope. Its stderr is ours.
class PeerProcess {
 public:
  explicit PeerProcess(const std::vector<std::string>& command);  // throws if it cannot start
  ~PeerProcess();
  PeerProcess(PeerProcess&& other) noexcept;
  PeerProcess& operator=(PeerProcess&&) = delete;

  void send(const std::string& line);
  std::string receive();  // without the end of line; throws when the program has ended

 private:
  std::string name_;
  pid_t pid_ = -1;
  int socket_ = -1;
  std::string unread_;
};

}  // namespace gallop::lab
