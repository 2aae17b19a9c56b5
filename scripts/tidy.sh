#!/usr/bin/env bash
# clang-tidy over the sources of the release build.
set -euo pipefail
cd "$(dirname "$0")/.."
run-clang-tidy -quiet -p build/release -j "$(nproc)" "^$PWD/(src|cli)/.*\.cpp$" >build/tidy.log 2>&1 ||
  { grep -E 'warning:|error:' build/tidy.log | sort -u; exit 1; }
