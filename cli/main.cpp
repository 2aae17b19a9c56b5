// SPDX-License-Identifier: MIT
#include "gallop/cli.h"

int main(int argc, char** argv) { return gallop::run_cli(argc, argv); }
