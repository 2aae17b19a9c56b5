// SPDX-License-Identifier: MIT
#include "jit/compiler.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "gallop/error.h"
#include "jit/errors.h"

extern char** environ;

namespace gallop::jit {
namespace fs = std::filesystem;
namespace {

bool is_program(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

std::optional<std::string> on_path(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return is_program(name) ? std::optional(name) : std::nullopt;
  }
  const char* path = std::getenv("PATH");
  for (std::string rest = path == nullptr ? "" : path; !rest.empty();) {
    const size_t colon = rest.find(':');
    const fs::path candidate = fs::path(rest.substr(0, colon)) / name;
    if (is_program(candidate)) return candidate.string();
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  return std::nullopt;
}

Compiler described(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  struct stat s {};
  stat(real.c_str(), &s);
  return {path, fmt::format("{} {} {}.{}", real.string(), s.st_size, s.st_mtim.tv_sec,
                            s.st_mtim.tv_nsec)};
}

// A folder for one compilation.
class Workshop {
 public:
  Workshop() {
    std::error_code error;
    const fs::path base = fs::temp_directory_path(error);
    path_ = (error ? "/tmp" : base.string()) + "/gallop-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) {
      throw Error(ErrorCode::io, fmt::format("no folder {} can be made to compile in: {}", path_,
                                             std::strerror(errno)));
    }
  }
  ~Workshop() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// This process's, but in English: errors are looked for in what compilers say.
std::vector<std::string> environment() {
  std::vector<std::string> out;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    if (!std::string_view(*at).starts_with("LC_ALL=")) out.emplace_back(*at);
  }
  out.emplace_back("LC_ALL=C.UTF-8");
  return out;
}

// Runs a program with its output in a file; its exit status.
int run(std::vector<std::string> command, const std::string& output) {
  std::vector<std::string> variables = environment();
  std::vector<char*> words = pointers(command), settings = pointers(variables);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int error = posix_spawn(&child, words[0], &actions, nullptr, words.data(), settings.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw Error(ErrorCode::unsupported, fmt::format("the C++ compiler {} cannot be started: {}",
                                                    command.front(), std::strerror(error)));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno == EINTR) continue;
    return -1;  // someone else has waited for it: judged by what it leaves
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

const Compiler& compiler() {
  static const Compiler found = [] {
    const char* own = std::getenv("GALLOP_CXX");
    if (own != nullptr && *own != 0) {
      if (const auto path = on_path(own)) return described(*path);
      throw Error(ErrorCode::unsupported,
                  fmt::format("GALLOP_CXX is '{}', expected a C++ compiler that can be run", own));
    }
    for (const char* name : {"c++", "g++", "clang++"}) {
      if (const auto path = on_path(name)) return described(*path);
    }
    throw Error(ErrorCode::unsupported,
                "rules cannot be compiled here: no c++, g++ or clang++ is on PATH and GALLOP_CXX "
                "names none; other modes than compiled do without");
  }();
  return found;
}

std::string compile_library(const Compiler& c, const std::vector<std::string>& flags,
                            const std::string& text) {
  const Workshop workshop;
  const std::string source = workshop.file("rule.cpp"), library = workshop.file("rule.so"),
                    output = workshop.file("output");
  std::ofstream(source, std::ios::binary) << text;
  std::vector<std::string> command = {c.path};
  command.insert(command.end(), flags.begin(), flags.end());
  command.insert(command.end(), {"-o", library, source});
  const int status = run(std::move(command), output);
  std::string made = contents(library);
  if (status > 0 || made.empty()) {
    std::string said = errors_in(contents(output));
    if (said.empty()) said = fmt::format("{} failed with status {}", c.path, status);
    throw Error(ErrorCode::invalid_argument, said);
  }
  return made;
}

}  // namespace gallop::jit
