// SPDX-License-Identifier: MIT
// What commands share that run trials in processes of their own.
#pragma once

#include "cli/common.h"
#include "lab/crew.h"
#include "lab/trial_pool.h"

namespace gallop::cli {

// So many at a time; 0: one, or one for each GPU. Ranks of one host divide what it has.
lab::TrialPoolOptions trial_pool(const Where& where, int jobs, const lab::Place& place = {});

}  // namespace gallop::cli
