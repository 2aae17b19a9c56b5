// SPDX-License-Identifier: MIT
#include <algorithm>

#include "check/golden.h"
#include "check/sweep.h"
#include "cli/common.h"

namespace gallop::cli {

void add_check(CLI::App& app, int& exit_code) {
  struct State {
    Output output;
    Where where;
    RuleFiles rules;
    check::SweepOptions sweep;
    std::string golden, mode = "multi";
  };
  auto state = std::make_shared<State>();
  CLI::App* check = app.add_subcommand(
      "check",
      "Every kernel against the double-precision reference, or recorded runs of other "
      "implementations; exit code 1 if any fails");
  check->add_option("--only", state->sweep.only,
                    "Only optimizers whose name this regular "
                    "expression matches");
  state->rules.add_to(*check);
  check->add_option("--golden", state->golden, "Replay the recorded runs in this folder");
  check->add_option("--sizes", state->sweep.sizes, "Tensor sizes to sweep")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  check->add_option("--isa", state->sweep.isas, "Only these instruction sets")->delimiter(',');
  check->add_option("--mode", state->mode, "How steps are run: unfused, single, multi, compiled")
      ->capture_default_str();
  state->where.add_to(*check);
  state->output.add_to(*check);
  check->callback([state, &exit_code] {
    state->sweep.device = state->where.parsed();
    state->sweep.threads = state->where.threads;
    state->sweep.seed = state->where.seed;
    state->sweep.mode = parse_mode(state->mode);
    state->sweep.names = state->rules.names();
    const lab::Table table =
        state->golden.empty()
            ? check::sweep(state->sweep)
            : check::replay_goldens(state->golden, state->sweep.only, state->where.threads,
                                    state->sweep.device, state->sweep.mode);
    state->output.emit(table);
    const lab::Value failed = std::string("fail");
    exit_code = std::any_of(table.rows.begin(), table.rows.end(),
                            [&](const lab::Row& r) { return *r.find("status") == failed; });
  });
}

}  // namespace gallop::cli
