// SPDX-License-Identifier: MIT
// torch beside us: the scripts of benchmarks/baselines/, which are built into the program, run by
// the python3 on PATH (or GALLOP_PYTHON).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/shapes.h"
#include "gallop/types.h"
#include "lab/peer_process.h"
#include "lab/row.h"

namespace gallop::lab {

class TorchPeer {
 public:
  TorchPeer(const char* script, const std::vector<std::string>& arguments);
  void greet();  // waits until it is ready; throws when there is no torch
  std::vector<Row> ask(const std::string& line);

 private:
  PeerProcess process_;
};

// Adam on the CPU. One process a mode, since torch's modes slow each other down in one.
class TorchGrid {
 public:
  TorchGrid(const std::vector<std::string>& modes, int threads, double time_limit_s);
  // One row a mode: contender, median_ms; or contender, error.
  std::vector<Row> cell(int64_t tensors, int64_t size);

 private:
  std::vector<TorchPeer> peers_;
};

// The steps that torch has, on a GPU.
class TorchStep {
 public:
  TorchStep(int device, double time_limit_s);
  // median_ms, graph_ms, host_us; or error, also where torch has no such optimizer.
  Row measure(const std::string& optimizer, const bench::ShapeList& shapes, DType param,
              double clip_norm);

 private:
  TorchPeer peer_;
};

}  // namespace gallop::lab
