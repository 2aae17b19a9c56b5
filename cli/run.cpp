// SPDX-License-Identifier: MIT
#include "cli/common.h"
#include "gallop/cli.h"

namespace gallop {

int run_cli(int argc, char** argv) {
  return cli::run(argc, argv, [](CLI::App& app, int& exit_code) {
    cli::add_info(app);
    cli::add_list(app);
    cli::add_check(app, exit_code);
    cli::add_bench(app, exit_code);
    cli::add_suite(app, exit_code);
    cli::add_convert(app);
    cli::add_race(app, exit_code);
    cli::add_profile(app, exit_code);
    cli::add_trial(app, exit_code);
    cli::add_advise(app);
    cli::add_report(app);
    cli::add_serve(app);
    cli::add_history(app);
    cli::add_diff(app, exit_code);
    cli::add_export(app);
    cli::add_train(app, exit_code);
  });
}

}  // namespace gallop
