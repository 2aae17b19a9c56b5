// SPDX-License-Identifier: MIT
#include "cli/race_slurm.h"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "cli/common.h"

namespace gallop::cli {
namespace {

namespace fs = std::filesystem;

// What was asked for, without a flag and its value.
void leave_out(std::vector<std::string>& words, const std::string& flag, bool has_value) {
  for (size_t i = 0; i < words.size();) {
    if (words[i] != flag && !words[i].starts_with(flag + "=")) {
      ++i;
      continue;
    }
    const size_t count = has_value && words[i] == flag && i + 1 < words.size() ? 2 : 1;
    const auto at = words.begin() + static_cast<std::ptrdiff_t>(i);
    words.erase(at, at + static_cast<std::ptrdiff_t>(count));
  }
}

}  // namespace

std::string slurm_script(const SlurmJob& job) {
  std::vector<std::string> words = invocation().words;
  std::error_code error;
  if (const fs::path self = fs::read_symlink("/proc/self/exe", error); !error) words[0] = self;
  leave_out(words, "--print-slurm", false);
  leave_out(words, "--shared", false);
  leave_out(words, "--slurm-tasks", true);
  leave_out(words, "--folder", true);
  leave_out(words, "--device", true);
  const std::string folder = fs::absolute(job.folder).lexically_normal().string();
  for (const std::string& word : {std::string("--device"), job.device, std::string("--shared"),
                                  std::string("--folder"), folder}) {
    words.push_back(word);
  }
  std::string out = fmt::format(
      "#!/bin/bash\n"
      "#SBATCH --job-name=gallop-race\n"
      "#SBATCH --array=0-{}\n"
      "#SBATCH --ntasks=1\n"
      "#SBATCH --requeue\n"
      "#SBATCH --output=gallop-race-%A_%a.log\n",
      job.tasks - 1);
  if (job.device.starts_with("cuda")) out += "#SBATCH --gpus-per-task=1\n";
  if (job.cpus > 0) out += fmt::format("#SBATCH --cpus-per-task={}\n", job.cpus);
  return out +
         fmt::format(
             "# All tasks need the folder below, and nodes of one kind. One of them shows who "
             "won, in its log.\n"
             "exec {}\n",
             shell_words(words));
}

}  // namespace gallop::cli
