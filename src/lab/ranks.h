// SPDX-License-Identifier: MIT
// Processes that mpirun started together, on one machine or many. They are told apart by number and
// talk in texts; 0 leads.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace gallop::lab {

struct RankMessage {
  int from = 0;
  std::string text;
};

class Ranks {
 public:
  Ranks() = default;
  virtual ~Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool send(int to, const std::string& text) = 0;  // does not wait; false: it is gone
  virtual std::optional<RankMessage> receive() = 0;        // does not wait either
  // Nothing may be sent after it. Where some are gone, MPI's own end would wait for them for ever.
  virtual void finish(bool all_are_there) = 0;
};

// Nothing if this process was not started by mpirun, or alone.
std::unique_ptr<Ranks> join_ranks();

}  // namespace gallop::lab
