// SPDX-License-Identifier: MIT
// For builds without libevent.
#include "gallop/error.h"
#include "lab/page/server.h"

namespace gallop::lab {

void serve(const ServerOptions&) {
  throw Error(ErrorCode::unsupported,
              "this build has no libevent to serve with; gallop report writes the same page");
}

}  // namespace gallop::lab
