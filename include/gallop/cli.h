// SPDX-License-Identifier: MIT
#pragma once

namespace gallop {

// The gallop program: returns its exit code. Link gallop::cli; rules that the calling program has
// added with gallop_add_rule() are known to every command.
int run_cli(int argc, char** argv);

}  // namespace gallop
