// SPDX-License-Identifier: MIT
// What came of a race, as tables.
#pragma once

#include <string>
#include <vector>

#include "lab/race.h"
#include "lab/row.h"

namespace gallop::lab {

// A row for each racer on each workload, the best first. Ratios are to the first racer's.
Table leaderboard(const RaceOptions& options, const RaceResult& result);

// Over all workloads; empty where there is one.
Table profiles(const RaceOptions& options, const RaceResult& result);

// Every trial with its curve, as samples; for the store.
std::vector<Row> trial_rows(const RaceOptions& options, const RaceResult& result);

}  // namespace gallop::lab
