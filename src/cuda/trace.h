// SPDX-License-Identifier: MIT
// What a GPU did and when, by CUPTI, which is loaded when it is first needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gallop::cuda {

struct Activity {
  std::string name;          // a kernel's, as a person would write it; or "copy", "set"
  int64_t begin_ns, end_ns;  // since an arbitrary moment, the same for all and for trace_now()
  uint32_t stream;
  uint64_t graph_node = 0;  // 0: not launched by a graph
  int64_t launched_ns = 0;  // when the host asked for it, or for its graph; 0: not known
};

// Records from the first call on until it is stopped; one at a time in a process. Throws
// ErrorCode::unsupported where there is no CUPTI or it is not allowed.
void start_trace();
std::vector<Activity> stop_trace();  // in the order of their beginnings
int64_t trace_now();

}  // namespace gallop::cuda
