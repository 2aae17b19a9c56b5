// SPDX-License-Identifier: MIT
// Finished trials of a race, a file for each. Several processes and machines may share it: a file
// appears whole, and the same trial has the same name everywhere.
#pragma once

#include <optional>
#include <string>

#include "lab/trial.h"

namespace gallop::lab {

class RaceFolder {
 public:
  explicit RaceFolder(std::string path);  // made when it is not there

  const std::string& path() const { return path_; }
  std::optional<TrialResult> find(const TrialSpec& spec) const;  // nothing: it was not run
  void keep(const TrialSpec& spec, const TrialResult& result) const;

 private:
  std::string file_of(const TrialSpec& spec) const;
  std::string path_;
};

}  // namespace gallop::lab
