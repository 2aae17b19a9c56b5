// SPDX-License-Identifier: MIT
#include "lab/contender.h"

#include <fmt/format.h>

#include "gallop/optimizer.h"

namespace gallop::lab {

Contender parse_contender(const std::string& text) {
  const size_t colon = text.find(':');
  Contender c;
  c.optimizer = text.substr(0, colon);
  if (colon != std::string::npos) c.state = text.substr(colon + 1);
  c.name = c.state == "fp32" ? c.optimizer : fmt::format("{} {}", c.optimizer, c.state);
  rule_info(c.optimizer);
  parse_state_policy(c.state);
  return c;
}

}  // namespace gallop::lab
