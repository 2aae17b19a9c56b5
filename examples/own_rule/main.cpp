// SPDX-License-Identifier: MIT
// The gallop program, with this folder's rule among the others.
#include "gallop/cli.h"

int main(int argc, char** argv) { return gallop::run_cli(argc, argv); }
