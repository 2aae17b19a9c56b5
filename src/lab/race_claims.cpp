// SPDX-License-Identifier: MIT
#include "lab/race_claims.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>

#include "io/atomic_file.h"
#include "lab/host.h"

namespace gallop::lab {
namespace {

namespace fs = std::filesystem;

std::string owner() { return fmt::format("{} {}\n", host_name(), getpid()); }

// Its process was on this machine and has ended.
bool orphaned(const std::string& path) {
  std::ifstream in(path);
  std::string host;
  pid_t pid = 0;
  if (!(in >> host >> pid) || host != host_name() || pid <= 0) return false;
  return kill(pid, 0) != 0 && errno == ESRCH;
}

}  // namespace

RaceClaims::RaceClaims(std::string folder, double stale_s)
    : folder_(std::move(folder)), stale_s_(stale_s), kept_(Clock::now()) {}

RaceClaims::~RaceClaims() {
  while (!held_.empty()) give_back(std::string(held_.begin()->first));
}

std::string RaceClaims::path_of(const std::string& trial, int n) const {
  return (fs::path(folder_) / fmt::format("{}.claim.{}", trial, n)).string();
}

bool RaceClaims::stale(const std::string& path) {
  std::error_code error;
  const auto touched = fs::last_write_time(path, error);
  if (error) return false;  // it was given back just now
  const auto [at, first] = watched_.try_emplace(path, Watched{touched, Clock::now()});
  if (at->second.touched != touched) at->second = {touched, Clock::now()};
  return orphaned(path) ||
         Clock::now() - at->second.since > std::chrono::duration<double>(stale_s_);
}

bool RaceClaims::take(const std::string& trial) {
  if (held_.contains(trial)) return true;
  int n = 0;
  while (fs::exists(path_of(trial, n + 1))) ++n;
  if (const std::string last = path_of(trial, n); fs::exists(last)) {
    if (!stale(last)) return false;
    ++n;
  }
  if (!io::create_file(path_of(trial, n), owner())) return false;
  held_[trial] = n;
  return true;
}

void RaceClaims::give_back(const std::string& trial) {
  const auto at = held_.find(trial);
  if (at == held_.end()) return;
  std::error_code ignored;
  for (int n = at->second; n >= 0; --n) fs::remove(path_of(trial, n), ignored);
  held_.erase(at);
}

void RaceClaims::keep() {
  constexpr double kPart = 0.1;
  if (Clock::now() - kept_ < std::chrono::duration<double>(kPart * stale_s_)) return;
  kept_ = Clock::now();
  for (const auto& [trial, n] : held_) {
    utimensat(AT_FDCWD, path_of(trial, n).c_str(), nullptr, 0);  // the file system's own time
  }
}

}  // namespace gallop::lab
