// SPDX-License-Identifier: MIT
// What rules with norms keep in device memory. Plain data for host and device.
#pragma once

#include "core/norms.h"
#include "cuda/step_data.h"

namespace gallop::cuda {

// A tensor is cut into tiles of whole or partial rows. A vector is cut like a matrix with rows of
// kTileColumns.
inline constexpr int kTileColumns = 256;
// Small blocks: while some end a tile and begin the next, others keep memory busy.
inline constexpr int kTileThreads = 256, kWarps = kTileThreads / 32;
// Of what comes between passes, on a multiprocessor at least.
inline constexpr int kBetweenPerSm = 2;

struct NormTensor {
  View view;                                    // as the rule sees it
  Index columns;                                // of one row, as it is cut
  Index rows;                                   // of one matrix, as it is cut
  unsigned tile_rows, row_tiles, column_tiles;  // of one matrix
  unsigned tiles;                               // of all matrices
  double* tensor_values;
  double *row_values[detail::kMaxRowValues], *column_values[detail::kMaxColumnValues];
  float* narrow[detail::kMaxColumnValues];    // column_values for fp32 arithmetic
  double* tile_sums;                          // [tile][kMaxSums]
  double* row_partials[detail::kMaxSums];     // [row of all matrices][column tile]
  double* column_partials[detail::kMaxSums];  // [matrix][row tile][column]
  double* column_sums[detail::kMaxSums];      // [matrix][column]
  double* states[detail::kMaxStates];         // per row or column, while between() is at work
  // Of tensors that several blocks work on between passes: how often they have met, and where they
  // leave sums for one another.
  unsigned* meetings;  // by pass
  double* left_sums;   // [2][kMostParts]
};

// A block's share of what comes between passes.
inline constexpr unsigned kMostParts = 64;
struct Share {
  unsigned tensor, part, parts;
};

// In place of a change of bases.
inline constexpr int kStepSkipped = -1;

// One launch of a pass, or of what comes after it. step.chunks are tiles.
struct NormStep {
  Step step;
  const NormTensor* norms;
  unsigned* wanted;     // by pass: some tensor's numbers say that it is to be run
  unsigned marks;       // from `wanted` on, with all meetings: to be zero when the step ends
  bool backward;        // from the last tile to the first: what the pass before read last is cached
  const Share* shares;  // by block, between passes
};

}  // namespace gallop::cuda
