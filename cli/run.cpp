// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <cstdio>

#include "cli/common.h"
#include "gallop/cli.h"
#include "gallop/error.h"
#include "gallop/version.h"

namespace gallop {

int run_cli(int argc, char** argv) {
  int exit_code = 0;
  try {
    CLI::App app("gallop: fused training optimizers, and the lab that measures them", "gallop");
    app.set_version_flag("--version", GALLOP_VERSION);
    app.require_subcommand(1);
    cli::RuleFiles::load(argc, argv);
    app.footer("gallop COMMAND --help says what a command takes.");
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
    std::vector<std::string> words(argv, argv + argc);
    if (!words.empty()) words[0] = "gallop";
    cli::invocation() = {words, cli::shell_words(words), {}};
    if (argc == 1) {
      fmt::print("{}", app.help());
      return 2;
    }
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
      if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
      fmt::print(stderr, "gallop: {} (gallop --help shows how)\n", e.what());
      return 2;
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "gallop: {}\n", e.what());
    return 1;
  }
  return exit_code;
}

}  // namespace gallop
