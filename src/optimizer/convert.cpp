// SPDX-License-Identifier: MIT
#include "gallop/convert.h"

#include "optimizer/checkpoint_file.h"

namespace gallop {

Conversion convert_checkpoint(const std::string& in, const std::string& out,
                              const StatePolicy& policy) {
  checkpoint::CheckpointFile file(in);
  for (Slot& s : file.slots) file.recode(s, policy.choose(s.param));
  file.set_policy(policy);
  const auto written = file.write(out);
  return {written.size(), file.bytes(), checkpoint::bytes_of(written)};
}

}  // namespace gallop
