// SPDX-License-Identifier: MIT
// A program that is talked to by its standard input and output. Its stderr is ours.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace gallop::lab {

class ChildProcess {
 public:
  // With CPUs of its own, if some are given; throws if it cannot start.
  explicit ChildProcess(const std::vector<std::string>& command, const std::vector<int>& cpus = {});
  ~ChildProcess();  // ends its input and waits; kill() before if it shall not go on
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  const std::string& name() const { return name_; }
  int socket() const { return socket_; }  // for poll

  bool send(const std::string& text);  // false: it has ended
  void end_input();
  bool receive();                     // waits for some bytes; false: no more will come
  std::optional<std::string> line();  // of those received, without its end
  std::string wait();                 // how it ended, in words
  void kill();

 private:
  std::string name_;
  pid_t pid_ = -1;
  int socket_ = -1;
  std::string unread_;
};

}  // namespace gallop::lab
