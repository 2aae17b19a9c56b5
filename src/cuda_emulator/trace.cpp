// SPDX-License-Identifier: MIT
// The emulated GPU keeps no record of what it did.
#include "cuda/trace.h"

#include "gallop/error.h"

namespace gallop::cuda {

void start_trace() {
  throw Error(ErrorCode::unsupported, "the emulated GPU cannot be traced, expected a real one");
}
std::vector<Activity> stop_trace() { return {}; }
int64_t trace_now() { return 0; }

}  // namespace gallop::cuda
