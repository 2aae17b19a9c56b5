// SPDX-License-Identifier: MIT
// Results of one build or day next to those of another.
#pragma once

#include <string>
#include <vector>

#include "lab/row.h"
#include "lab/store.h"

namespace gallop::lab {

// What counts as one observation. Samples of one process share its luck, where its memory lies or
// what else ran, so two processes of the same program often differ beyond their samples' spread.
enum class Unit { automatic, samples, runs };  // automatic: runs, if there are enough on both sides

struct DiffOptions {
  Unit unit = Unit::automatic;
  std::string metric;    // empty: what each kind of row has samples of first
  double tolerance = 0;  // a change for the worse by no more is none, 0.05: 5 %
};

struct Diff {
  Table table;
  int better = 0, worse = 0, same = 0;  // configurations; same: no difference seen
  int unproven = 0;  // their samples differ, but there were too few runs to know why
};

// Rows with the same configuration are compared; others are counted in a note.
Diff compare_results(const std::vector<StoredRow>& a, const std::vector<StoredRow>& b,
                     const DiffOptions& options);

}  // namespace gallop::lab
