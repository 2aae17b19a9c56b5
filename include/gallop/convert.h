// SPDX-License-Identifier: MIT
// Checkpoints from one state format to another, without the optimizer that wrote them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gallop/policy.h"

namespace gallop {

struct Conversion {
  size_t tensors;                     // written
  int64_t bytes_before, bytes_after;  // of all tensors
  bool low_bits = false;              // masters or remainders were left out, or are the template's
};

// `out` may be `in`: it is replaced in one go, or left as it was when something throws. What is in
// the wanted format already stays as it is to the bit.
Conversion convert_checkpoint(const std::string& in, const std::string& out,
                              const StatePolicy& policy);

// To and from the names that bitsandbytes has: NAME.state1, NAME.absmax1, NAME.qmap1, ..., for its
// optimizers adam, adamw, lion, sgd (with momentum), rmsprop and adagrad. fp32 state stays that;
// other formats become 8bit-bnb. Groups, hyper-parameters and formats are those of `like`, a
// checkpoint of the same optimizer.
Conversion to_bitsandbytes(const std::string& in, const std::string& out);
Conversion from_bitsandbytes(const std::string& in, const std::string& like,
                             const std::string& out);

}  // namespace gallop
