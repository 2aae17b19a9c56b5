// SPDX-License-Identifier: MIT
#include "lab/torch_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "gallop/error.h"
#include "io/atomic_file.h"
#include "torch_adam_grid.gen.h"

namespace gallop::lab {
namespace {

[[noreturn]] void fail(const std::string& why) {
  throw Error(ErrorCode::unsupported, fmt::format("--with torch: {}", why));
}

// A file of our own in the temporary folder, gone at the end of the scope.
class ScriptFile {
 public:
  explicit ScriptFile(std::string_view text)
      : path_((std::filesystem::temp_directory_path() /
               fmt::format("gallop-torch-grid-{}.py", getpid()))
                  .string()) {
    io::write_file_atomically(path_, text);
  }
  ~ScriptFile() { std::remove(path_.c_str()); }
  ScriptFile(const ScriptFile&) = delete;
  ScriptFile& operator=(const ScriptFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string output_of(const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) fail(fmt::format("cannot run {}", command));
  std::string text;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  const int status = pclose(pipe);
  if (status != 0) fail(fmt::format("{} ended with status {}", command, status));
  return text;
}

Row to_row(const nlohmann::json& object) {
  Row row;
  for (const auto& [key, value] : object.items()) {
    if (value.is_string()) row.set(key, value.get<std::string>());
    if (value.is_number_integer()) row.set(key, value.get<int64_t>());
    if (value.is_number_float()) row.set(key, value.get<double>());
  }
  return row;
}

}  // namespace

std::vector<Row> torch_grid_rows(const std::vector<int64_t>& tensors,
                                 const std::vector<int64_t>& sizes, int threads,
                                 const std::string& modes) {
  const char* set = std::getenv("GALLOP_PYTHON");
  const std::string python = set != nullptr && *set != 0 ? set : "python3";
  if (std::system(fmt::format("'{}' -c 'import torch' 2>/dev/null", python).c_str()) != 0) {
    fail(fmt::format("{} has no torch (GALLOP_PYTHON names another python)", python));
  }
  const ScriptFile script(kTorchAdamGrid);
  const std::string text = output_of(
      fmt::format("'{}' '{}' --threads {} --modes {} --tensors {} --size {}", python, script.path(),
                  threads, modes, fmt::join(tensors, ","), fmt::join(sizes, ",")));
  std::vector<Row> rows;
  try {
    const nlohmann::json parsed = nlohmann::json::parse(text);
    for (const auto& object : parsed.at("rows")) rows.push_back(to_row(object));
  } catch (const nlohmann::json::exception& e) {
    fail(fmt::format("its output is not the rows expected ({})", e.what()));
  }
  return rows;
}

}  // namespace gallop::lab
