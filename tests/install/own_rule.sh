#!/bin/sh
# SPDX-License-Identifier: MIT
# own_rule.sh BUILD [CXX]
#
# Installs the gallop in the folder BUILD, builds examples/own_rule against what was installed and
# nothing else, and lets the result list, check and time its rule; then the same rule from a file.
set -eu
build=$1
cxx=${2:-c++}
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
GALLOP_CACHE=$work/cache
export GALLOP_CACHE

fail() {
  echo "own_rule.sh: $1" >&2
  [ -f "$work/log" ] && cat "$work/log" >&2
  exit 1
}
run() {  # a step whose output matters only when it fails
  "$@" >"$work/log" 2>&1 || fail "failed: $*"
}
expect() {  # pattern, command...
  pattern=$1
  shift
  run "$@"
  grep -Eq -e "$pattern" "$work/log" || fail "'$*' prints nothing like $pattern"
}

run cmake --install "$build" --prefix "$work/prefix"
# The example alone: nothing of the source tree is beside it.
cp -r "$source/examples/own_rule" "$work/own_rule"
unset CMAKE_PREFIX_PATH gallop_DIR gallop_ROOT CPATH CPLUS_INCLUDE_PATH LIBRARY_PATH 2>/dev/null || :
# As strict as users are, which must not make gallop's own headers an error.
run cmake -S "$work/own_rule" -B "$work/build" "-DCMAKE_PREFIX_PATH=$work/prefix" \
  "-DCMAKE_CXX_COMPILER=$cxx" -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF \
  "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Werror"
grep -q "^gallop_DIR:PATH=$work/prefix/" "$work/build/CMakeCache.txt" ||
  fail "another gallop was found than the one installed"
run cmake --build "$work/build"
if grep -Fr --include='*.d' --include='*.make' -e "$source/src" "$work/build" >"$work/log"; then
  fail "the example was compiled with headers of the source tree"
fi

program=$work/build/own_rule
expect '^cautious_lion ' "$program" list
expect '^adamw ' "$program" list
expect 'sign\(b1 m' "$program" list cautious_lion
expect '^cautious_lion +baseline +pass ' \
  "$program" check --only '^cautious_lion$' --sizes 0,1,257,1003
if grep -q ' fail ' "$work/log"; then fail "the check fails"; fi
expect '^cautious_lion +multi ' "$program" bench step --optimizer cautious_lion --size 16384 \
  --tensors 1 --time-limit 0.05 --beta1 0.95
expect '^cautious_lion +compiled ' "$program" bench step --optimizer cautious_lion --size 16384 \
  --tensors 1 --time-limit 0.05 --mode compiled
if "$program" bench step --optimizer no_such_rule >"$work/log" 2>&1; then
  fail "an unknown optimizer was accepted"
fi

# The same rule from a file, by the installed program alone.
mkdir "$work/elsewhere"
sed 's/"cautious_lion"/"quick_lion"/' "$work/own_rule/cautious_lion.h" >"$work/elsewhere/quick_lion.h"
cd "$work/elsewhere"
expect '^quick_lion +baseline +pass ' "$work/prefix/bin/gallop" check --rule quick_lion.h --sizes 0,1,1003
if [ -z "$(ls "$GALLOP_CACHE")" ]; then fail "nothing was kept in the cache"; fi
cp -r "$source/examples/rule_file" "$work/rule_file"
run cmake -S "$work/rule_file" -B "$work/rule_file/build" "-DCMAKE_PREFIX_PATH=$work/prefix" \
  "-DCMAKE_CXX_COMPILER=$cxx" -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF
run cmake --build "$work/rule_file/build"
expect '^quick_lion.h@0.001 +0\.[0-9]' "$work/rule_file/build/race" 40 lion quick_lion.h@0.001
echo "own_rule.sh: an installed gallop builds, compiles, checks, times and races rules of its user"
