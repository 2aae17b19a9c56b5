// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/peer_process.h"
#include "lab/row.h"

namespace gallop::lab {

// torch's Adam beside ours: benchmarks/baselines/torch_adam_grid.py, which is built into the
// program, run by the python3 on PATH (or GALLOP_PYTHON). One process a mode, since torch's modes
// slow each other down in one.
class TorchGrid {
 public:
  // Throws when there is no torch.
  TorchGrid(const std::vector<std::string>& modes, int threads, double time_limit_s);

  // One row a mode: contender, median_ms; or contender, error.
  std::vector<Row> cell(int64_t tensors, int64_t size);

 private:
  std::vector<PeerProcess> peers_;
};

}  // namespace gallop::lab
