// SPDX-License-Identifier: MIT
// The program itself, in a process of its own.
#pragma once

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "folder.h"

namespace gallop::test {

// What it says goes to the files `out` and `errors` in the folder.
inline pid_t start(std::vector<std::string> words, const Folder& folder) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  setpgid(0, 0);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  if (std::freopen((folder / "out").c_str(), "w", stdout) == nullptr ||
      std::freopen((folder / "errors").c_str(), "w", stderr) == nullptr) {
    _exit(126);
  }
  execvp(argv[0], argv.data());
  _exit(127);
}

// Its exit code, or -1 where a signal ended it.
inline int end_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> out;
  std::error_code ignored;
  const std::string tasks = fmt::format("/proc/{}/task", pid);
  for (const auto& task : std::filesystem::directory_iterator(tasks, ignored)) {
    std::ifstream in(task.path() / "children");
    for (pid_t child = 0; in >> child;) out.push_back(child);
  }
  return out;
}

}  // namespace gallop::test
