// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/statistics.h"
#include "lab/profile_numbers.h"
#include "lab/report_formats.h"

namespace gallop::lab {
namespace {

constexpr size_t kRankTest = 4;  // four against four can differ by more than chance

double percent(double ratio) { return 100 * (ratio - 1); }
bool claimed(const Change& c) { return c.claim == Claim::less || c.claim == Claim::greater; }

class Reading {
 public:
  Reading(const ProfileOptions& o, const std::vector<ProfileRun>& runs)
      : o_(o), runs_(runs), numbers_(o, runs) {}

  std::vector<std::string> lines() {
    noise();
    fastest();
    next_to_baseline();
    least_memory();
    warm_up();
    data();
    repeats();
    failures();
    return std::move(lines_);
  }

 private:
  static const ProfileFigure& speed() { return profile_figure("tokens_per_s"); }
  const std::string& name(size_t contender) const { return o_.contenders[contender].name; }
  const std::string& baseline() const { return name(o_.baseline); }
  size_t count() const { return o_.contenders.size(); }
  double median(const ProfileFigure& f, size_t contender) const {
    return bench::median(numbers_.of(f, contender));
  }
  bool has(const ProfileFigure& f, size_t contender) const {
    return !numbers_.of(f, contender).empty();
  }
  bool several() const { return numbers_.spread(speed()).freedom > 0; }

  template <class... Args>
  void say(fmt::format_string<Args...> text, Args&&... args) {
    lines_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  // The contender that is first by a figure.
  std::optional<size_t> best(const ProfileFigure& f, bool most) const {
    std::optional<size_t> at;
    for (size_t i = 0; i < count(); ++i) {
      if (!has(f, i)) continue;
      const bool better =
          at && (most ? median(f, i) > median(f, *at) : median(f, i) < median(f, *at));
      if (!at || better) at = i;
    }
    return at;
  }

  void noise() {
    if (!several()) {
      if (!best(speed(), true)) return;
      return say(
          "one run of each says nothing of noise, so no difference in time is claimed; --repeat 3 "
          "or more measures it");
    }
    std::vector<std::string> parts;
    const auto runs = static_cast<size_t>(o_.repeats);
    for (const char* figure : {"tokens_per_s", "total_s", "prepare_s", "host_mb"}) {
      const Spread& spread = numbers_.spread(profile_figure(figure));
      if (spread.freedom == 0) continue;
      parts.push_back(fmt::format("{} by {:.1f} %", figure, 100 * noise_band(spread, runs, runs)));
    }
    say("noise as measured here: medians of {} runs of one and the same optimizer differ in 95 % "
        "of cases by at most: {}; *: beyond that with the whole of its interval (95 %, bootstrap); "
        "the verdict is on "
        "tokens_per_s",
        runs, fmt::join(parts, ", "));
    constexpr double kLoud = 0.1;
    if (noise_band(numbers_.spread(speed()), runs, runs) > kLoud) {
      say("that is much: is the machine busy with something else? Longer runs (--steps) and more "
          "of "
          "them (--repeat) average it out");
    }
  }

  // Those that cannot be told apart from this one in speed.
  std::vector<std::string> like(size_t contender) const {
    std::vector<std::string> names;
    for (size_t i = 0; i < count(); ++i) {
      if (i == contender) continue;
      const auto c = numbers_.between(speed(), i, contender);
      if (c && !claimed(*c)) names.push_back(name(i));
    }
    return names;
  }

  void fastest() {
    const auto top = best(speed(), true);
    if (!top || count() < 2 || !several()) return;
    const std::vector<std::string> others = like(*top);
    const std::string what = fmt::format("highest throughput: {}, {} tokens/s", name(*top),
                                         human_value(median(speed(), *top)));
    if (others.empty()) {
      say("{}, beyond the noise above every other", what);
    } else if (others.size() + 1 == count() && count() > 2) {
      say("no optimizer's throughput can be told apart from the highest, {}'s", name(*top));
    } else if (*top != o_.baseline && count() > 2) {  // else it is said of the baseline
      say("{}, which cannot be told apart from {}", what, fmt::join(others, ", "));
    }
  }

  void next_to_baseline() {
    std::vector<std::string> faster, slower, same;
    for (size_t i = 0; i < count(); ++i) {
      if (i == o_.baseline) continue;
      const auto c = numbers_.next_to_baseline(speed(), i);
      if (!c || c->claim == Claim::too_few) continue;
      if (!claimed(*c)) {
        same.push_back(name(i));
        continue;
      }
      (c->claim == Claim::greater ? faster : slower)
          .push_back(fmt::format("{} ({:+.1f} %)", name(i), percent(c->ratio)));
    }
    if (!faster.empty()) say("faster than {}: {}", baseline(), fmt::join(faster, ", "));
    if (!slower.empty()) say("slower than {}: {}", baseline(), fmt::join(slower, ", "));
    if (!same.empty()) {
      say("not distinguishable from {} in tokens/s: {}", baseline(), fmt::join(same, ", "));
    }
  }

  void least_memory() {
    const ProfileFigure& memory = profile_figure("device_mb");
    const auto least = best(memory, false);
    if (!least || count() < 2) return;
    std::vector<std::string> names;
    for (size_t i = 0; i < count(); ++i) {
      if (has(memory, i) && median(memory, i) == median(memory, *least)) names.push_back(name(i));
    }
    if (names.size() == count()) return;
    std::string next;
    const auto c = numbers_.next_to_baseline(memory, *least);
    if (c && claimed(*c)) {
      next = fmt::format(", {:.1f} % less than {}", -percent(c->ratio), baseline());
    }
    say("least memory on the device: {}, {:.4g} MB{}", fmt::join(names, ", "),
        median(memory, *least), next);
  }

  void warm_up() {
    const ProfileFigure &prepare = profile_figure("prepare_s"), &total = profile_figure("total_s"),
                        &warm = profile_figure("warm_total_s");
    double low = std::numeric_limits<double>::infinity(), high = 0, share = 0;
    std::vector<std::string> turned;
    for (size_t i = 0; i < count(); ++i) {
      if (!has(prepare, i)) continue;
      const double s = median(prepare, i);
      low = std::min(low, s), high = std::max(high, s);
      share = std::max(share, s / median(total, i));
      const auto with = numbers_.next_to_baseline(total, i),
                 without = numbers_.next_to_baseline(warm, i);
      if (i == o_.baseline || !with || !without || with->claim == without->claim) continue;
      if (claimed(*with) && claimed(*without)) turned.push_back(name(i));
    }
    if (high == 0) return;
    std::string range = fmt::format("{:.2g}", low);
    if (const std::string most = fmt::format("{:.2g}", high); most != range) range += " to " + most;
    say("warm-up takes {} s, up to {:.0f} % of such a run's time and less of a longer one's; "
        "tokens_per_s leaves it out",
        range, 100 * share);
    if (!turned.empty()) {
      say("without warm-up the order of total time next to {} turns round: {}", baseline(),
          fmt::join(turned, ", "));
    }
  }

  void data() {
    double made_s = 0, waited = 0;
    for (const ProfileRun& r : runs_) {
      if (r.result.end != TrialEnd::finished || !r.result.usage) continue;
      made_s = std::max(made_s, r.result.usage->data_s);
      waited = std::max(waited, r.result.data_wait_s / r.result.usage->total_s);
    }
    if (made_s == 0) return;
    say("making batches takes {:.2g} s at most, beside the steps, which wait for them {:.1f} % of "
        "a run's time at most",
        made_s, 100 * waited);
  }

  void repeats() {
    const auto runs = static_cast<size_t>(o_.repeats);
    if (!several() || count() < 2) return;
    if (runs < kRankTest) {
      say("{} repeats are too few for a rank test (its p is {} at least), so what is said rests on "
          "intervals and noise; with --repeat {} or more the test must agree too",
          runs, runs == 3 ? "0.1" : "0.33", kRankTest);
    }
    constexpr int64_t kWorthIt = 50;
    std::vector<std::string> wanted;
    for (size_t i = 0; i < count(); ++i) {
      const auto c = numbers_.next_to_baseline(speed(), i);
      if (i == o_.baseline || !c || claimed(*c)) continue;
      const int64_t enough = repeats_to_tell(*c, runs);
      if (enough <= static_cast<int64_t>(runs) || enough > kWorthIt) continue;
      wanted.push_back(fmt::format("{} ({:+.1f} %) about {}", name(i), percent(c->ratio), enough));
    }
    if (!wanted.empty()) {
      say("repeats that could tell, were the difference as it seems: {}", fmt::join(wanted, ", "));
    }
  }

  void failures() {
    for (size_t i = 0; i < count(); ++i) {
      for (const ProfileRun& r : runs_) {
        if (r.contender != i || r.result.end == TrialEnd::finished) continue;
        say("{}: {}{}{}", name(i), to_string(r.result.end), r.result.message.empty() ? "" : ": ",
            r.result.message);
        break;
      }
    }
  }

  const ProfileOptions& o_;
  const std::vector<ProfileRun>& runs_;
  ProfileNumbers numbers_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> read_profile(const ProfileOptions& o,
                                      const std::vector<ProfileRun>& runs) {
  return Reading(o, runs).lines();
}

}  // namespace gallop::lab
