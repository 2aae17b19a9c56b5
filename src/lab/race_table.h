// SPDX-License-Identifier: MIT
// What came of a race, as tables.
#pragma once

#include <string>
#include <vector>

#include "lab/race.h"
#include "lab/row.h"

namespace gallop::lab {

// What it is about.
std::string race_title(const RaceOptions& options);

// A row for each racer on each workload, the best first. Ratios are to the first racer's.
Table leaderboard(const RaceOptions& options, const RaceResult& result);

// Who is first on each workload, and who cannot be told apart from it; no more than tests at 95 %
// carry.
std::vector<std::string> read_race(const RaceOptions& options, const RaceResult& result);

// What was tried, a row for each; empty where nothing was tuned.
Table tuning(const RaceOptions& options, const RaceResult& result);

// Over all workloads; empty where there is one.
Table profiles(const RaceOptions& options, const RaceResult& result);

// A trial with its curve, finished or under way.
Row trial_row(const RaceOptions& options, const Entry& entry, const TrialResult& result);

// Every trial with its curve, as samples; for the store.
std::vector<Row> trial_rows(const RaceOptions& options, const RaceResult& result);

}  // namespace gallop::lab
