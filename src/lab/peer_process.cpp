// SPDX-License-Identifier: MIT
#include "lab/peer_process.h"

#include <fmt/format.h>

#include "gallop/error.h"

namespace gallop::lab {
namespace {

[[noreturn]] void fail(const std::string& why) { throw Error(ErrorCode::unsupported, why); }

}  // namespace

void PeerProcess::send(const std::string& line) {
  if (!child_.send(line + "\n")) fail(fmt::format("{} has ended", child_.name()));
}

std::string PeerProcess::receive() {
  for (;;) {
    if (auto line = child_.line()) return *line;
    if (!child_.receive()) fail(fmt::format("{} has ended without an answer", child_.name()));
  }
}

}  // namespace gallop::lab
