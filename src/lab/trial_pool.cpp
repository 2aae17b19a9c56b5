// SPDX-License-Identifier: MIT
#include "lab/trial_pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include "gallop/error.h"

namespace gallop::lab {
namespace {

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> out;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return out;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) out.push_back(cpu);
  }
  return out;
}

// Those of one of several jobs; each has at least one.
std::vector<int> share_of(const std::vector<int>& cpus, int job, int jobs) {
  if (cpus.empty()) return {};
  const size_t n = cpus.size(), count = static_cast<size_t>(jobs), at = static_cast<size_t>(job);
  if (n < count) return {cpus[at % n]};
  return {cpus.begin() + static_cast<std::ptrdiff_t>(n * at / count),
          cpus.begin() + static_cast<std::ptrdiff_t>(n * (at + 1) / count)};
}

class Child {
 public:
  Child(const std::vector<std::string>& program, const std::vector<int>& cpus) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw Error(ErrorCode::io, fmt::format("no socket for a trial: {}", std::strerror(errno)));
    }
    std::vector<char*> argv;
    argv.reserve(program.size() + 1);
    for (const std::string& word : program) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus) CPU_SET(cpu, &set);
    pid_ = fork();
    if (pid_ == 0) {
      if (!cpus.empty()) sched_setaffinity(0, sizeof set, &set);
      dup2(ends[1], STDIN_FILENO);
      dup2(ends[1], STDOUT_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    socket_ = ends[0];
    if (pid_ < 0) {
      close(socket_);
      throw Error(ErrorCode::io, fmt::format("no process for a trial: {}", std::strerror(errno)));
    }
  }
  ~Child() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (socket_ >= 0) close(socket_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int socket() const { return socket_; }

  void send(const std::string& text) const {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t n = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;  // it has ended: receive() will know
      sent += static_cast<size_t>(n);
    }
    shutdown(socket_, SHUT_WR);
  }

  // What has come, line by line; false when no more will.
  template <class Line>
  bool receive(Line line) {
    char buffer[65536];
    const ssize_t n = recv(socket_, buffer, sizeof buffer, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (n <= 0) return false;
    unread_.append(buffer, static_cast<size_t>(n));
    size_t begin = 0;
    for (size_t end; (end = unread_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      line(unread_.substr(begin, end - begin));
    }
    unread_.erase(0, begin);
    return true;
  }

  // How it ended, in words.
  std::string wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    if (WIFSIGNALED(status)) {
      return fmt::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
    }
    return fmt::format("exit code {}", WEXITSTATUS(status));
  }

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  std::string unread_;
};

struct Job {
  size_t trial = 0;
  std::unique_ptr<Child> child;
  std::optional<TrialResult> result;
};

std::vector<std::string> program_of(const TrialPoolOptions& o) {
  if (!o.program.empty()) return o.program;
  return {"/proc/self/exe", "trial"};
}

TrialSpec placed(TrialSpec spec, const TrialPoolOptions& o, int job, const std::vector<int>& cpus) {
  if (spec.device.starts_with("cuda") && !o.devices.empty()) {
    spec.device = o.devices[static_cast<size_t>(job) % o.devices.size()];
  }
  if (!cpus.empty()) spec.threads = static_cast<int>(cpus.size());
  return spec;
}

// A line is a point or the result.
void take(const std::string& line, Job& job, const TrialEvents& events) {
  try {
    const Json json = Json::parse(line);
    if (json.contains("result")) {
      job.result = result_from(json.at("result"));
    } else {
      TrialResult some;
      some.end = TrialEnd::finished;
      Json whole = to_json(some);
      whole["points"] = Json::array({json.at("point")});
      events.point(job.trial, result_from(whole).points.at(0));
    }
  } catch (const Json::exception&) {  // something else wrote to its output
  }
}

void finish(Job& job, const TrialEvents& events) {
  const std::string how = job.child->wait();
  job.child.reset();
  if (!job.result) {
    job.result.emplace();
    job.result->end = TrialEnd::lost;
    job.result->message = fmt::format("its process ended without a result, with {}", how);
  }
  events.end(job.trial, *job.result);
  job.result.reset();
}

}  // namespace

void run_trials(std::span<const TrialSpec> trials, const TrialPoolOptions& options,
                const TrialEvents& events) {
  if (options.jobs < 1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} trials at a time, expected at least 1", options.jobs));
  }
  const std::vector<std::string> program = program_of(options);
  const std::vector<int> cpus = options.divide_cpus ? usable_cpus() : std::vector<int>();
  std::vector<Job> jobs(std::min(static_cast<size_t>(options.jobs), trials.size()));
  size_t next = 0;
  while (!events.stop()) {
    std::vector<pollfd> open;
    std::vector<Job*> whose;
    for (size_t i = 0; i < jobs.size(); ++i) {
      Job& job = jobs[i];
      if (!job.child && next < trials.size()) {
        const std::vector<int> own =
            share_of(cpus, static_cast<int>(i), static_cast<int>(jobs.size()));
        job.trial = next++;
        job.child = std::make_unique<Child>(program, own);
        events.begin(job.trial);
        job.child->send(
            dump(to_json(placed(trials[job.trial], options, static_cast<int>(i), own))) + '\n');
      }
      if (!job.child) continue;
      open.push_back({job.child->socket(), POLLIN, 0});
      whose.push_back(&job);
    }
    if (open.empty()) return;
    constexpr int kPatienceMs = 100;
    poll(open.data(), open.size(), kPatienceMs);
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i].revents == 0) continue;
      Job& job = *whose[i];
      const auto line = [&](const std::string& text) { take(text, job, events); };
      if (!job.child->receive(line)) finish(job, events);
    }
    events.wait();
  }
}

int serve_trial() {
  const std::string text((std::istreambuf_iterator<char>(std::cin)), {});
  const auto say = [](const Json& json) {
    fmt::print("{}\n", dump(json));
    std::fflush(stdout);
  };
  TrialSpec spec;
  try {
    spec = spec_from(Json::parse(text));
  } catch (const Json::exception& e) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("standard input is no trial ({}), expected JSON", e.what()));
  }
  const TrialResult result = run_trial(spec, [&](const TrialPoint& p) {
    TrialResult some;
    some.points = {p};
    say({{"point", to_json(some).at("points").at(0)}});
  });
  say({{"result", to_json(result)}});
  return 0;
}

}  // namespace gallop::lab
