// SPDX-License-Identifier: MIT
// What races start for each of their trials; not for people.
#include "cli/common.h"
#include "lab/trial_pool.h"

namespace gallop::cli {

void add_trial(CLI::App& app, int& exit_code) {
  CLI::App* trial = app.add_subcommand("trial", "One trial of a race, from standard input");
  trial->group("");
  trial->callback([&exit_code] { exit_code = lab::serve_trial(); });
}

}  // namespace gallop::cli
