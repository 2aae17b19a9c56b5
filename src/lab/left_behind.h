// SPDX-License-Identifier: MIT
// Results that could not go into their store, each command's in a file of its own beside it.
#pragma once

#include <string>
#include <vector>

#include "lab/store.h"

namespace gallop::lab {

// The file's path.
std::string leave_behind(const Results& results, const std::string& store);

class LeftBehind {
 public:
  LeftBehind(std::string path, Results results)
      : path_(std::move(path)), results_(std::move(results)) {}
  const Results& results() const { return results_; }
  void remove() const;

 private:
  std::string path_;
  Results results_;
};

// Those that can be read; others stay where they are.
std::vector<LeftBehind> left_behind(const std::string& store);

}  // namespace gallop::lab
