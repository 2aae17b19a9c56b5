// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "bench/shapes.h"
#include "lab/row.h"

namespace gallop::cli {

// What a policy chooses for a model's parameters and what that saves, parameters alike in one row.
lab::Table policy_table(const std::string& policy, const bench::ShapeList& shapes,
                        const std::string& optimizer);

}  // namespace gallop::cli
