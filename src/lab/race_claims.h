// SPDX-License-Identifier: MIT
// Who runs which trial where several processes share a race's folder. A claim is a file
// TRIAL.claim.N that its owner touches now and then; one that is not touched any more is taken over
// by the one who makes N + 1.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>

namespace gallop::lab {

class RaceClaims {
 public:
  // A claim is stale when it was not touched for so long while this process watched: clocks of
  // machines that share the folder may differ.
  explicit RaceClaims(std::string folder, double stale_s = 60);
  ~RaceClaims();  // gives back what it holds
  RaceClaims(const RaceClaims&) = delete;
  RaceClaims& operator=(const RaceClaims&) = delete;

  // False: somebody else has it. Whoever takes one looks for the result once more, as its last
  // owner gave it back after keeping that.
  bool take(const std::string& trial);
  void give_back(const std::string& trial);
  void keep();  // touches what it holds; to be called often

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    std::filesystem::file_time_type touched;
    Clock::time_point since;
  };

  std::string path_of(const std::string& trial, int n) const;
  bool stale(const std::string& path);

  std::string folder_;
  double stale_s_;
  std::map<std::string, int> held_;  // the N of each
  std::map<std::string, Watched> watched_;
  Clock::time_point kept_;
};

}  // namespace gallop::lab
