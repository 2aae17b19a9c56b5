// SPDX-License-Identifier: MIT
// A race over ranks: the leader hands out trials, the others run them. One that is silent for too
// long is lost, and its trials are run again.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "lab/ranks.h"
#include "lab/trial_pool.h"

namespace gallop::lab {

// Of one rank among those on its machine.
struct Place {
  int local = 0, ranks = 1;
  std::vector<int> cpus;  // its own; shared only where there are more ranks than CPUs
};

struct CrewOptions {
  std::string kind;        // of build and machine: figures of others would not be comparable
  double patience_s = 30;  // with a rank that says nothing
};

// The leader's side: a runner beside its own pool.
class Crew : public TrialRunner {
 public:
  Crew(Ranks& ranks, CrewOptions options);  // waits until all are there
  ~Crew() override;                         // sends them home

  const Place& place() const { return place_; }  // of the leader itself
  int lost() const { return lost_; }

  bool full() const override;
  bool idle() const override;
  void start(size_t trial, const TrialSpec& spec) override;
  std::vector<size_t> poll(const TrialEvents& events) override;
  void stop() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Member {
    bool here = false;
    int slots = 0;
    Clock::time_point heard;
    std::map<int64_t, size_t> under_way;  // trials, by the number they were sent with
  };

  void gather();
  void end();
  void give_up(Member& member);
  void hear(const RankMessage& message, const TrialEvents& events);
  void tell(int rank, const Json& what);
  void tell_all(const Json& what);
  void keep_up();

  Ranks& ranks_;
  CrewOptions options_;
  Place place_;
  std::vector<Member> members_;  // by rank; the leader is not here
  std::vector<size_t> again_;    // trials of those who are lost
  int64_t sent_ = 0;
  int lost_ = 0;
  Clock::time_point told_;
};

// The others' side, until the leader sends them home or is silent for too long: an exit code.
int work_for_crew(Ranks& ranks, const CrewOptions& options,
                  const std::function<TrialPoolOptions(const Place&)>& pool_at,
                  const std::function<bool()>& stop);

}  // namespace gallop::lab
