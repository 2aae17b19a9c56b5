// SPDX-License-Identifier: MIT
#include "lab/race_run.h"

#include <chrono>
#include <optional>

#include "lab/race_progress.h"

namespace gallop::lab {
namespace {

using Clock = std::chrono::steady_clock;

// One stage of a race.
class StageRun {
 public:
  StageRun(const RaceOptions& race, const std::vector<Entry>& entries, const RaceFolder& folder,
           const RaceRunOptions& options, std::map<std::string, TrialResult>& done)
      : folder_(folder), o_(options), done_(done), progress_(race, entries) {
    for (const Entry& e : entries) {
      if (done_.contains(trial_hash(e.spec)) || known(e)) continue;
      left_.push_back(e.spec);
      whose_.push_back(&e);
    }
  }

  // What was lost, by a machine that had too little memory for all of them, say, gets one more
  // chance, and is not kept: the next time it is run again.
  bool go() {
    for (int chance = 0; chance < 2 && !left_.empty() && !stopped_; ++chance) {
      last_chance_ = chance == 1;
      looked_.assign(left_.size(), {});
      run();
      left_ = std::exchange(lost_, {});
      whose_ = std::exchange(of_lost_, {});
    }
    return !stopped_;
  }

 private:
  bool known(const Entry& entry) {
    const auto result = folder_.find(entry.spec);
    if (!result) return false;
    // It had less time than it has now.
    const double limit = o_.pool.timeout_s;
    if (result->end == TrialEnd::timed_out && (limit == 0 || limit > result->train_s)) return false;
    done_[trial_hash(entry.spec)] = *result;
    progress_.known(entry, *result);
    return true;
  }

  Turn turn(size_t i) {
    if (o_.claims == nullptr) return Turn::now;
    if (looked_[i] && Clock::now() - *looked_[i] < std::chrono::duration<double>(o_.look_s)) {
      return Turn::later;
    }
    looked_[i] = Clock::now();
    const std::string hash = trial_hash(left_[i]);
    if (known(*whose_[i])) return Turn::never;
    if (!o_.claims->take(hash)) return Turn::later;
    if (!known(*whose_[i])) return Turn::now;
    o_.claims->give_back(hash);
    return Turn::never;
  }

  void end(size_t i, const TrialResult& r) {
    const bool again = r.end == TrialEnd::lost && !last_chance_;
    progress_.end(*whose_[i], r, again);
    if (again) return lost_.push_back(left_[i]), of_lost_.push_back(whose_[i]);
    if (r.end != TrialEnd::lost) folder_.keep(left_[i], r);
    const std::string hash = trial_hash(left_[i]);
    if (o_.claims != nullptr) o_.claims->give_back(hash);
    done_[hash] = r;
  }

  void run() {
    TrialEvents events;
    events.turn = [&](size_t i) { return turn(i); };
    events.begin = [&](size_t i) { progress_.begin(*whose_[i]); };
    events.point = [&](size_t i, const TrialPoint& p) { progress_.point(*whose_[i], p); };
    events.end = [&](size_t i, const TrialResult& r) { end(i, r); };
    events.wait = [&] {
      progress_.draw();
      if (o_.claims != nullptr) o_.claims->keep();
    };
    events.stop = [&] { return stopped_ = o_.stop(); };
    if (o_.others == nullptr) return run_trials(left_, o_.pool, events);
    TrialPoolOptions own = o_.pool;
    own.patience_ms = kPatienceBesideOthersMs;
    TrialPool pool(own);
    TrialRunner* const runners[] = {o_.others, &pool};
    run_trials(left_, runners, events);
  }

  const RaceFolder& folder_;
  const RaceRunOptions& o_;
  std::map<std::string, TrialResult>& done_;
  RaceProgress progress_;
  std::vector<TrialSpec> left_, lost_;
  std::vector<const Entry*> whose_, of_lost_;
  std::vector<std::optional<Clock::time_point>> looked_;
  bool last_chance_ = false, stopped_ = false;
};

}  // namespace

RunEntries run_here(const RaceOptions& race, const RaceFolder& folder,
                    const RaceRunOptions& options) {
  return [&race, &folder, options](const std::vector<Entry>& entries,
                                   std::map<std::string, TrialResult>& done) {
    return StageRun(race, entries, folder, options, done).go();
  };
}

}  // namespace gallop::lab
