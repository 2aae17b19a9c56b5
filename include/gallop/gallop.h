// SPDX-License-Identifier: MIT
// gallop: fused training optimizers. Include this.
#pragma once

#include "gallop/convert.h"    // IWYU pragma: export
#include "gallop/error.h"      // IWYU pragma: export
#include "gallop/optimizer.h"  // IWYU pragma: export
#include "gallop/policy.h"     // IWYU pragma: export
#include "gallop/rules.h"      // IWYU pragma: export
#include "gallop/scaler.h"     // IWYU pragma: export
#include "gallop/schedule.h"   // IWYU pragma: export
#include "gallop/types.h"      // IWYU pragma: export
#include "gallop/version.h"    // IWYU pragma: export
