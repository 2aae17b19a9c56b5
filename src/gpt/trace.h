// SPDX-License-Identifier: MIT
// Where the time of training steps goes, on the host and on a GPU, for Perfetto.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/trace.h"
#include "gallop/optimizer.h"
#include "gpt/ranges.h"
#include "io/atomic_file.h"

namespace gallop::gpt {

// What a range or a kernel is part of.
struct Place {
  int64_t step = 0;          // from 1 on; 0: of none
  int64_t batch = -1;        // in its step; -1: of none
  std::string phase;         // forward, backward, optimizer, or empty
  int64_t layer = kNoLayer;  // as an Observer is told
};

struct Range {
  std::string name;
  int64_t begin_ns = 0, end_ns = 0;
  int parent = -1;  // index of the range it is within
  Place place;
};

// Something that a GPU did.
struct Kernel {
  cuda::Activity activity;
  Place place;
  bool recorded() const { return activity.graph_node != 0; }
};

// Everything known when a trace ends.
struct Traced {
  std::string title;
  int64_t layers = 0, steps = 0;
  std::vector<Range> ranges;    // in the order of their beginnings
  std::vector<Kernel> kernels;  // likewise
};

struct TraceOptions {
  std::string path;
  std::string title;
  Device device;
  int64_t layers = 0;
  int64_t steps = 10;  // what comes after them is not kept
};

class Trace {
 public:
  // Throws where the file cannot be written or the GPU cannot be traced. Nothing is recorded until
  // the first range begins.
  explicit Trace(TraceOptions options);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  void begin(std::string_view name, int64_t layer);
  void end();

  bool full() const { return steps_ == options_.steps && open_.empty(); }
  Traced finish();  // writes the file; ranges that begin later are not kept

 private:
  int64_t now() const;
  void stop();

  TraceOptions options_;
  io::AtomicFile file_;
  bool gpu_, recording_ = false, stopped_ = false;
  int64_t steps_ = 0;    // that have ended
  int64_t batches_ = 0;  // of the step at hand
  int64_t end_ns_ = 0;
  std::vector<Range> ranges_;
  std::vector<int> open_;  // -1: not kept
  std::vector<cuda::Activity> activities_;
};

// JSON for Perfetto or chrome://tracing.
std::string to_json(const Traced& traced);

// A few sentences: kernels by the time they take, phases and layers by theirs.
std::vector<std::string> describe(const Traced& traced);

}  // namespace gallop::gpt
