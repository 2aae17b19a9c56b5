// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace gallop::cli {

struct SlurmJob {
  int tasks = 1, cpus = 0;  // cpus 0: as many as the cluster gives
  std::string device, folder;
};

// For sbatch: this command, by an array of tasks that share a folder.
std::string slurm_script(const SlurmJob& job);

}  // namespace gallop::cli
