// SPDX-License-Identifier: MIT
#include "lab/crew.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "gallop/error.h"
#include "lab/cpus.h"
#include "lab/host.h"

namespace gallop::lab {
namespace {

struct Hello {
  std::string host, kind;
  std::vector<int> cpus;
};

Hello hello_of(const std::string& kind) { return {host_name(), kind, usable_cpus()}; }

Json to_json(const Hello& h) {
  return {{"hello", {{"host", h.host}, {"kind", h.kind}, {"cpus", h.cpus}}}};
}

Hello hello_from(const Json& json) {
  const Json& h = json.at("hello");
  return {h.at("host").get<std::string>(), h.at("kind").get<std::string>(),
          h.at("cpus").get<std::vector<int>>()};
}

// CPUs that mpirun gave to several ranks alike are divided among them.
std::vector<Place> places(const std::vector<Hello>& hellos) {
  std::vector<Place> out(hellos.size());
  for (size_t i = 0; i < hellos.size(); ++i) {
    int before = 0, alike = 0, alike_before = 0;
    out[i].ranks = 0;
    for (size_t j = 0; j < hellos.size(); ++j) {
      if (hellos[j].host != hellos[i].host) continue;
      const bool same = hellos[j].cpus == hellos[i].cpus;
      out[i].ranks += 1, alike += same ? 1 : 0;
      if (j < i) before += 1, alike_before += same ? 1 : 0;
    }
    out[i].local = before;
    out[i].cpus = share_of(hellos[i].cpus, alike_before, alike);
  }
  return out;
}

Json to_json(const Place& p) {
  return {{"place", {{"local", p.local}, {"ranks", p.ranks}, {"cpus", p.cpus}}}};
}

Place place_from(const Json& json) {
  const Json& p = json.at("place");
  return {p.at("local").get<int>(), p.at("ranks").get<int>(), p.at("cpus").get<std::vector<int>>()};
}

bool past(std::chrono::steady_clock::time_point since, double seconds) {
  return std::chrono::steady_clock::now() - since > std::chrono::duration<double>(seconds);
}

double heartbeat_s(const CrewOptions& o) { return std::min(1.0, 0.2 * o.patience_s); }

}  // namespace

Crew::Crew(Ranks& ranks, CrewOptions options)
    : ranks_(ranks),
      options_(std::move(options)),
      members_(static_cast<size_t>(ranks.size())),
      told_(Clock::now()) {
  try {
    gather();
  } catch (...) {
    end();
    throw;
  }
}

Crew::~Crew() {
  try {
    end();
  } catch (...) {  // they leave by themselves, later
  }
}

void Crew::gather() {
  std::vector<Hello> hellos(members_.size());
  hellos[0] = hello_of(options_.kind);
  size_t missing = members_.size() - 1;
  for (const Clock::time_point begin = Clock::now(); missing > 0;) {
    if (past(begin, options_.patience_s)) {
      lost_ = static_cast<int>(missing);
      throw Error(ErrorCode::unsupported, fmt::format("{} of {} ranks said nothing for {:.4g} s",
                                                      missing, ranks_.size(), options_.patience_s));
    }
    const auto message = ranks_.receive();
    if (!message) {
      usleep(1000);
      continue;
    }
    const auto rank = static_cast<size_t>(message->from);
    hellos[rank] = hello_from(Json::parse(message->text));
    members_[rank].here = true;
    members_[rank].heard = Clock::now();
    --missing;
    if (hellos[rank].kind == options_.kind) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {} on {} is of another build or kind of machine than rank 0 on "
                            "{}, expected the same",
                            rank, hellos[rank].host, hellos[0].host));
  }
  const std::vector<Place> all = places(hellos);
  place_ = all[0];
  for (size_t i = 1; i < all.size(); ++i) tell(static_cast<int>(i), to_json(all[i]));
}

void Crew::tell(int rank, const Json& what) {
  if (!ranks_.send(rank, dump(what))) members_[static_cast<size_t>(rank)].heard = {};
}

void Crew::tell_all(const Json& what) {
  for (int i = 1; i < ranks_.size(); ++i) {
    if (members_[static_cast<size_t>(i)].here) tell(i, what);
  }
}

// MPI's own end waits for all, so that it is known first whether all are there.
void Crew::end() {
  for (int i = 1; i < ranks_.size(); ++i) tell(i, {{"end", true}});  // also those given up
  const auto here = [&] {
    return std::count_if(members_.begin(), members_.end(), [](const Member& m) { return m.here; });
  };
  for (const Clock::time_point begin = Clock::now(); here() > 0;) {
    if (past(begin, options_.patience_s)) break;
    const auto message = ranks_.receive();
    if (!message) {
      usleep(1000);
    } else if (Json::parse(message->text).contains("bye")) {
      members_[static_cast<size_t>(message->from)].here = false;
    }
  }
  const bool all = here() == 0 && lost_ == 0;
  for (int i = 1; i < ranks_.size(); ++i) tell(i, {{"leave", all}});
  ranks_.finish(all);
}

bool Crew::full() const {
  return std::none_of(members_.begin(), members_.end(), [](const Member& m) {
    return m.here && m.under_way.size() < static_cast<size_t>(m.slots);
  });
}

bool Crew::idle() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const Member& m) { return m.under_way.empty(); });
}

void Crew::start(size_t trial, const TrialSpec& spec) {
  // Whoever has the most room, so that machines fill alike.
  const auto room = [](const Member& m) {
    return m.here ? m.slots - static_cast<int>(m.under_way.size()) : 0;
  };
  const auto at = std::max_element(members_.begin(), members_.end(),
                                   [&](const auto& a, const auto& b) { return room(a) < room(b); });
  at->under_way[++sent_] = trial;
  tell(static_cast<int>(at - members_.begin()), {{"id", sent_}, {"trial", to_json(spec)}});
}

void Crew::hear(const RankMessage& message, const TrialEvents& events) {
  Member& member = members_.at(static_cast<size_t>(message.from));
  if (!member.here) return;  // it was given up
  member.heard = Clock::now();
  const Json json = Json::parse(message.text);
  if (json.contains("bye")) return give_up(member);
  if (json.contains("slots")) member.slots = json.at("slots").get<int>();
  if (!json.contains("id")) return;
  const auto at = member.under_way.find(json.at("id").get<int64_t>());
  if (at == member.under_way.end()) return;  // it was stopped
  const size_t trial = at->second;
  if (json.contains("point")) return events.point(trial, point_from(json.at("point")));
  member.under_way.erase(at);
  events.end(trial, result_from(json.at("result")));
}

void Crew::give_up(Member& member) {
  member.here = false;
  ++lost_;
  for (const auto& [id, trial] : member.under_way) again_.push_back(trial);
  member.under_way.clear();
}

// Says that the leader is alive, and gives up those who do not.
void Crew::keep_up() {
  if (past(told_, heartbeat_s(options_))) {
    told_ = Clock::now();
    tell_all({{"alive", true}});
  }
  for (Member& member : members_) {
    if (member.here && past(member.heard, options_.patience_s)) give_up(member);
  }
}

std::vector<size_t> Crew::poll(const TrialEvents& events) {
  while (const auto message = ranks_.receive()) hear(*message, events);
  keep_up();
  return std::exchange(again_, {});
}

void Crew::stop() {
  for (Member& member : members_) member.under_way.clear();
  tell_all({{"stop", true}});
}

namespace {

// One of the others.
class Hand {
 public:
  Hand(Ranks& ranks, const CrewOptions& options,
       const std::function<TrialPoolOptions(const Place&)>& pool_at)
      : ranks_(ranks), options_(options), pool_at_(pool_at), heard_(Clock::now()), said_(heard_) {
    // Trials are called by the numbers they came with.
    events_.point = [&](size_t id, const TrialPoint& p) {
      say({{"id", id}, {"point", to_json(p)}});
    };
    events_.end = [&](size_t id, const TrialResult& r) {
      say({{"id", id}, {"result", to_json(r)}});
    };
    say(to_json(hello_of(options.kind)));
  }

  int work(const std::function<bool()>& stop) {
    while (!stop() && !past(heard_, options_.patience_s)) {
      while (const auto message = ranks_.receive()) {
        heard_ = Clock::now();
        const Json json = Json::parse(message->text);
        if (json.contains("leave")) {
          ranks_.finish(json.at("leave").get<bool>());
          return 0;
        }
        hear(json);
      }
      if (past(said_, heartbeat_s(options_))) said_ = Clock::now(), say({{"alive", true}});
      if (pool_) {
        pool_->poll(events_);
      } else {
        usleep(1000);
      }
    }
    pool_.reset();
    say({{"bye", true}});
    ranks_.finish(false);
    return 1;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void say(const Json& what) { ranks_.send(0, dump(what)); }

  void hear(const Json& json) {
    if (json.contains("place")) {
      TrialPoolOptions own = pool_at_(place_from(json));
      own.patience_ms = kPatienceBesideOthersMs;
      pool_ = std::make_unique<TrialPool>(own);
      say({{"slots", pool_->jobs()}});
    } else if (json.contains("stop")) {
      pool_->stop();
    } else if (json.contains("trial")) {
      pool_->start(json.at("id").get<size_t>(), spec_from(json.at("trial")));
    } else if (json.contains("end")) {
      pool_.reset();
      say({{"bye", true}});
    }
  }

  Ranks& ranks_;
  const CrewOptions& options_;
  const std::function<TrialPoolOptions(const Place&)>& pool_at_;
  std::unique_ptr<TrialPool> pool_;
  TrialEvents events_;
  Clock::time_point heard_, said_;
};

}  // namespace

int work_for_crew(Ranks& ranks, const CrewOptions& options,
                  const std::function<TrialPoolOptions(const Place&)>& pool_at,
                  const std::function<bool()>& stop) {
  return Hand(ranks, options, pool_at).work(stop);
}

}  // namespace gallop::lab
