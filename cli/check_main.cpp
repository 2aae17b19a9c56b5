// SPDX-License-Identifier: MIT
// gallop with the command check alone, for machines that are emulated: soon compiled.
#include "cli/common.h"

int main(int argc, char** argv) { return gallop::cli::run(argc, argv, gallop::cli::add_check); }
