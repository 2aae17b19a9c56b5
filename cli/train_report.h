// SPDX-License-Identifier: MIT
// What gallop train shows while it runs and when it is done.
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "data/corpus.h"
#include "gpt/run.h"
#include "lab/row.h"

namespace gallop::cli {

// On stderr: one redrawn line on a terminal, else a line for every evaluation, or every 10 s.
class TrainLine {
 public:
  TrainLine(int64_t first, int64_t steps);
  ~TrainLine();
  TrainLine(const TrainLine&) = delete;
  TrainLine& operator=(const TrainLine&) = delete;

  void step(const gpt::StepReport& report);

 private:
  using Clock = std::chrono::steady_clock;

  int64_t first_, steps_;
  bool terminal_, drawn_ = false;
  Clock::time_point start_, last_;
};

// --log: a JSON object on a line for each step.
class TrainLog {
 public:
  // A resumed run goes on behind the line of its first step.
  TrainLog(const std::string& path, int64_t first);
  void step(const gpt::StepReport& report, std::optional<double> grad_norm);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

// One row, for csv and json.
lab::Row train_row(gpt::Trainer& trainer, const data::Corpus& corpus, const std::string& model,
                   const std::string& data, int64_t min_length, const gpt::RunResult& result);
// The same for people: a line for each field.
lab::Table upright(const lab::Row& row);

// Text that no terminal obeys and every JSON holds: other bytes as \xNN.
std::string printable(std::string_view text);

}  // namespace gallop::cli
