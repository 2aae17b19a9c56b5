// SPDX-License-Identifier: MIT
#include "lab/peer_process.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "gallop/error.h"

extern char** environ;

namespace gallop::lab {
namespace {

[[noreturn]] void fail(const std::string& why) { throw Error(ErrorCode::unsupported, why); }

}  // namespace

PeerProcess::PeerProcess(const std::vector<std::string>& command) : name_(command.front()) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    fail(fmt::format("cannot talk to {}: {}", name_, std::strerror(errno)));
  }
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const int error =
      posix_spawnp(&pid_, name_.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  socket_ = ends[0];
  if (error != 0) {
    close(socket_);
    fail(fmt::format("cannot run {}: {}", name_, std::strerror(error)));
  }
}

PeerProcess::PeerProcess(PeerProcess&& other) noexcept
    : name_(std::move(other.name_)),
      pid_(std::exchange(other.pid_, -1)),
      socket_(std::exchange(other.socket_, -1)),
      unread_(std::move(other.unread_)) {}

PeerProcess::~PeerProcess() {
  if (pid_ < 0) return;
  close(socket_);  // the end of its input
  waitpid(pid_, nullptr, 0);
}

void PeerProcess::send(const std::string& line) {
  const std::string text = line + "\n";
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::send(socket_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(fmt::format("{} has ended", name_));
    at += static_cast<size_t>(n);
  }
}

std::string PeerProcess::receive() {
  size_t end = 0;
  while ((end = unread_.find('\n')) == std::string::npos) {
    char buffer[4096];
    const ssize_t n = recv(socket_, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(fmt::format("{} has ended without an answer", name_));
    unread_.append(buffer, static_cast<size_t>(n));
  }
  std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  return line;
}

}  // namespace gallop::lab
