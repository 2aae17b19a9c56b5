// SPDX-License-Identifier: MIT
// What the memory can do: the loops that an optimizer step is measured against.
#pragma once

#include <cstdint>
#include <memory>

#include "bench/sampler.h"

namespace gallop::bench {

// Arrays that are read and written in the pattern of AdamW (four read, three written: 28 bytes an
// element), shared out over threads as a step is.
class Read4Write3 {
 public:
  Read4Write3(int64_t elements, int threads);
  void run(int iterations);
  double bytes() const { return 28.0 * static_cast<double>(n_); }
  // Two of the arrays, only read: a core can wait for fewer bytes at a time than it can move.
  void run_read(int iterations) const;
  double bytes_read() const { return 8.0 * static_cast<double>(n_); }

 private:
  int64_t n_;
  int threads_;
  bool backward_ = true;  // the direction of the last pass
  std::shared_ptr<float[]> data_;
};

struct Ceilings {
  double copy_gb_s;  // bytes read plus bytes written
  double read4_write3_gb_s;
};

// Over `bytes` of memory in all.
Ceilings measure_ceilings(int64_t bytes, int threads);

// Memory whose pages are first touched by the threads that will use them.
std::shared_ptr<float[]> touched_floats(int64_t n, int threads, float value);

}  // namespace gallop::bench
