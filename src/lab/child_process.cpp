// SPDX-License-Identifier: MIT
#include "lab/child_process.h"

#include <fmt/format.h>
#include <sched.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "gallop/error.h"

extern char** environ;

namespace gallop::lab {
namespace {

[[noreturn]] void fail(const std::string& why) { throw Error(ErrorCode::unsupported, why); }

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command, const std::vector<int>& cpus)
    : name_(command.front()) {
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
  // A terminal's ctrl-C goes to all of its processes: what it means for this one is told by ours.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGINT);
  posix_spawnattr_setsigmask(&attributes, &blocked);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int error =
      posix_spawnp(&pid_, name_.c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  socket_ = ends[0];
  if (error != 0) {
    close(socket_);
    fail(fmt::format("cannot run {}: {}", name_, std::strerror(error)));
  }
  if (cpus.empty()) return;
  cpu_set_t set;  // before it is told what to do, so that its threads have it too
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  sched_setaffinity(pid_, sizeof set, &set);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : name_(std::move(other.name_)),
      pid_(std::exchange(other.pid_, -1)),
      socket_(std::exchange(other.socket_, -1)),
      unread_(std::move(other.unread_)) {}

ChildProcess::~ChildProcess() {
  if (socket_ >= 0) close(socket_);  // the end of its input
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

bool ChildProcess::send(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::send(socket_, text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

void ChildProcess::end_input() { shutdown(socket_, SHUT_WR); }

bool ChildProcess::receive() {
  char buffer[65536];
  ssize_t n = -1;
  while ((n = recv(socket_, buffer, sizeof buffer, 0)) < 0 && errno == EINTR) {
  }
  if (n > 0) unread_.append(buffer, static_cast<size_t>(n));
  return n > 0;
}

std::optional<std::string> ChildProcess::line() {
  const size_t end = unread_.find('\n');
  if (end == std::string::npos) return {};
  std::string out = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  return out;
}

std::string ChildProcess::wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) {
    return fmt::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

void ChildProcess::kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

}  // namespace gallop::lab
